// The hosts of tests that run as programs do: joined by shared memory, each with its helper thread.
#include <unistd.h>

#include "dev/shm/shm_device.h"
#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

Carried<std::unique_ptr<Device>> open_wire(const net::Link&, Arena&) {
  auto d = open_shm("vr-sock-" + std::to_string(::getpid()) + "-wire");
  if (!d) return std::unexpected(Refusal{Carriage::kDevice, d.error().code, d.error().where});
  return std::move(*d);
}

}  // namespace

Stack::Parts parts_of_host(int) {
  Settings s;
  s.config_file = "/dev/null";
  s.rx_poll = 200;  // sleeps soon: two hosts share few processors
  s.arena_bytes = Bytes(16 << 20);
  s.mem_alloc_type = MemAlloc::kAnonymous;
  s.tcp_timewait = Duration::s(1);
  return {s, open_wire, true};
}

}  // namespace vireo::test
