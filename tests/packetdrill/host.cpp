#include "tests/packetdrill/host.h"

#include "tests/packetdrill/network.h"

namespace vireo::packetdrill {
namespace {

MemDeviceOptions device() {
  // The frames of a burst are under way at once; checksums are made when they leave.
  return {.rx_ring = 1024,
          .tx_ring = 4096,
          .promiscuous = true,
          .mtu = kMtu,
          .checksums = Checksum::kNotNeeded};
}

/// libc's, and not this object's (plugin.cpp).
int kernel_getsockopt(int fd, int level, int name, void* value, socklen_t* n) noexcept {
  return static_cast<int>(::syscall(SYS_getsockopt, fd, level, name, value, n));
}

}  // namespace

Host::Host(bool merge) : merge_(merge), start_(clock().now()) {
#define X(call) g_libc.call = ::call;
  VIREO_LIBC_CALLS(X)
#undef X
  g_libc.getsockopt = kernel_getsockopt;
  g_libc.ppoll = Turns::ppoll;
  make_network();
}

/// Made by the first socket, when the script has set what it likes. Settings are the kernel's to
/// change at any time, and a program's Stack reads them once: a script's is told of them again.
Stack& Host::stack() {
  if (stack_) {
    const_cast<KernelDefaults&>(stack_->defaults()) = KernelDefaults::read();  // NOLINT
    return *stack_;
  }
  link_ = std::make_unique<MemLink>(1, MemImpairments{}, MemImpairments{}, clock(), device());
  Settings s;
  s.config_file = "/dev/null";
  s.stats_dir.clear();
  s.arena_bytes = vireo::Bytes(64 << 20);
  s.mem_alloc_type = MemAlloc::kAnonymous;
  s.rx_poll = 0;  // whoever waits sleeps at once: in Turns
  s.select_poll = Duration();
  stack_ = std::make_unique<Stack>(
      Stack::Parts{s,
                   [this](const net::Link&, Arena&) -> Carried<std::unique_ptr<Device>> {
                     return link_->release(MemEnd::kA);
                   },
                   false});
  return *stack_;
}

Host::~Host() {
  const Turns::Turn turn(turns_);
  for (const int fd : open_)
    if (const Handle h = fd_table().find(fd)) (void)sock::close(h);
  stack_.reset();
  link_.reset();
}

}  // namespace vireo::packetdrill
