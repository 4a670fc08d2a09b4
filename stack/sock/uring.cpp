// Moves all sockets to the kernel when the program makes its first ring.
#include "stack/sock/uring.h"

#include <cstring>

#include "core/log.h"
#include "stack/sock/calls.h"

namespace vireo::sock {
namespace {

std::atomic<bool> g_has_ring{false};

}  // namespace

void ring_was_made(Stack& stack) noexcept {
  if (!stack.settings().io_uring || g_has_ring.exchange(true)) return;
  log<LogLevel::kInfo>(
      "the program uses io_uring, which knows no carried sockets: they are the kernel's from now "
      "on; VIREO_IO_URING=0 carries them, if its rings are for files alone");
  for (int fd = 0; fd < fd_table().end(); ++fd) {
    const Handle h = fd_table().find(fd);
    if (!h || h->stack != &stack) continue;
    if (const auto done = hand_over(h, {Carriage::kInherited, 0, "io_uring"}); !done)
      log<LogLevel::kWarn>(
          "descriptor {}: a connection stays carried, and io_uring cannot use it ({}: {})", fd,
          done.error().where, std::strerror(done.error().code));
  }
}

bool has_ring() noexcept { return g_has_ring.load(std::memory_order_relaxed); }

}  // namespace vireo::sock
