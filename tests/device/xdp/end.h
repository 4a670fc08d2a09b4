// One opened end of a veth pair: arena, pool, device, queues, and the frames that pass between two
// of them. Owner: the test. Thread: the test's.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "../frames.h"
#include "core/arena.h"
#include "dev/xdp/ethtool.h"
#include "dev/xdp/xdp.h"

namespace vireo::test {

inline const IpAddr kAddress[] = {*IpAddr::parse("10.0.0.1"), *IpAddr::parse("10.0.0.2"),
                                  *IpAddr::parse("fd76::1"), *IpAddr::parse("fd76::2")};
inline constexpr uint16_t kPort = 7000;

struct End {
  /// Opens interface `ifindex`; not its queues.
  explicit End(IfIndex ifindex, XdpOptions options = {.rx_frames = 128, .tx_frames = 128},
               uint32_t frames = 1024)
      : arena(Arena::create(size_t{frames} * 2048, false).value_or(Arena())),
        pool(std::make_unique<PacketPool>(arena.bytes().first(size_t{frames} * 2048), 2048U)) {
    auto opened = open_xdp(ifindex, arena, options);
    if (opened) {
      device = std::move(*opened);
      const HostLink link{VlanId(), xdp::describe(ifindex)->mac};
      device->set_host({{&link, 1}, kAddress});
    } else
      error = opened.error();
  }
  bool open_queue(uint32_t id = 0) {
    auto q = device->open_queue(QueueId(id), *pool);
    if (!q) {
      error = q.error();
      return false;
    }
    queues.push_back(std::move(*q));
    return true;
  }
  bool steer(const IpAddr& local, uint16_t port = kPort) {
    FlowKey k;
    k.proto = IpProto::kUdp;
    k.local = {local, port, 0};
    auto r = device->steer(k, FlowTag(0), *queues[0]);
    if (!r) {
      error = r.error();
      return false;
    }
    rules.push_back(std::move(*r));
    return true;
  }

  Arena arena;
  std::unique_ptr<PacketPool> pool;
  std::unique_ptr<Device> device;  ///< null: see error
  std::vector<std::unique_ptr<Queue>> queues;
  std::vector<FlowRule> rules;
  Err error;
};

/// UDP from side `from` to the steered port of the other side.
inline Bytes udp_frame(int from, uint32_t number, size_t payload = 60) {
  FrameSpec s;
  s.from_mac = {2, 0, 0, 0, 0, static_cast<uint8_t>(from + 1)};
  s.to_mac = {2, 0, 0, 0, 0, static_cast<uint8_t>(2 - from)};
  s.from = {kAddress[from], 6000, 0};
  s.to = {kAddress[1 - from], kPort, 0};
  return build_frame(s, numbered_payload(number, payload));
}

/// The next whole packet of `q`, or nothing in about a second.
inline Bytes next_packet(Queue& q) {
  Bytes all;
  for (int tries = 0; tries < 1000; ++tries) {
    RxDesc d;
    if (q.rx_burst({&d, 1}) == 0) {
      usleep(1000);
      continue;
    }
    const auto part = std::as_const(*d.packet).bytes();
    all.insert(all.end(), part.begin(), part.end());
    d.packet.reset();
    q.rx_refill();
    if (!has(d.flags, RxFlags::kMore)) break;
  }
  return all;
}

}  // namespace vireo::test
