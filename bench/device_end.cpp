#include "device_end.h"

#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "dev/shm/shm_device.h"

namespace vireo::bench {
namespace {

constexpr uint32_t kFrames = 8192;
constexpr uint32_t kFrameBytes = 2048;

template <class T>
T must(Result<T> r) {
  if (!r) die(fmt::format("{}: {}", r.error().where, std::strerror(r.error().code)));
  return std::move(*r);
}

std::unique_ptr<Device> opened(const Options& o, Arena& arena) {
  if (!o.shm.empty()) return must(open_shm(o.shm, {.slots = 1024, .mtu = 1500}));
  return must(open_xdp(IfIndex(if_nametoindex(o.ifname.c_str())), arena, o.xdp));
}

void fill_ip_sum(Frame& f) {
  f.ip_sum = 0;
  uint32_t sum = 0;
  const auto* p = reinterpret_cast<const std::byte*>(&f) + 14;
  for (int i = 0; i < 20; i += 2)
    sum += std::to_integer<uint32_t>(p[i]) << 8 | std::to_integer<uint32_t>(p[i + 1]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  f.ip_sum = static_cast<uint16_t>(~sum);
}

}  // namespace

volatile std::sig_atomic_t g_stop = 0;

void die(std::string_view what) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, what);
  std::exit(1);
}

void pin(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("cannot pin to that core");
}

FlowKey frames_flow(const Options& o) {
  FlowKey key;
  key.proto = IpProto::kUdp;
  key.local = {o.local, kPort, 0};
  key.remote = {o.remote, kPort, 0};
  return key;
}

End::End(const Options& o, const FlowKey& key)
    : arena(must(Arena::create(size_t{kFrames} * kFrameBytes, true))),
      pool(arena.bytes().first(size_t{kFrames} * kFrameBytes), kFrameBytes),
      device(opened(o, arena)),
      queue(must(device->open_queue(QueueId(0), pool))) {
  rule = must(device->steer(key, FlowTag(1), *queue));
}

Frame frame_to_peer(const Options& o) {
  Frame f;
  std::memcpy(f.to_mac, o.peer_mac.data(), 6);
  const uint8_t from_mac[6] = {2, 0, 0, 0, 0, 1};
  std::memcpy(f.from_mac, from_mac, 6);
  f.ip_length = static_cast<uint16_t>(o.size - 14);
  f.udp_length = static_cast<uint16_t>(o.size - 34);
  f.from = o.local.as_v4();
  f.to = o.remote.as_v4();
  f.from_port = kPort;
  f.to_port = kPort;
  f.number = 0;
  fill_ip_sum(f);
  return f;
}

std::string_view wire_of(const Options& o, const End& end) {
  return o.shm.empty() ? end.device->caps().mode : "shm";
}

}  // namespace vireo::bench
