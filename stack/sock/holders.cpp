// Marks the Files of a process.
#include "stack/sock/holders.h"

#include <fcntl.h>

#include "stack/sock/fd_table.h"

namespace vireo::sock {
namespace {

void forget_holders(File& f) noexcept {
  f.holders.store(Holders::kUnknown, std::memory_order_relaxed);
}

}  // namespace

void note_spawn(Stack& stack) noexcept {
  for (int fd = 0; fd < fd_table().end(); ++fd) {
    const Handle h = fd_table().find(fd);
    if (!h || h->stack != &stack || h->receives_left.load(std::memory_order_relaxed) == 0) continue;
    const int flags = libc().fcntl(fd, F_GETFD);
    if (flags < 0 || (flags & FD_CLOEXEC) == 0) forget_holders(*h.file);
  }
}

void note_child(Stack& stack) noexcept {
  fd_table().for_each_file([&](File& f) {
    if (f.stack == &stack) forget_holders(f);
  });
}

void note_elsewhere(int fd) noexcept {
  if (const Handle h = fd_table().find(fd)) forget_holders(*h.file);
}

}  // namespace vireo::sock
