#include "dev/verbs/shape.h"

#include <cerrno>

namespace vireo::verbs {
namespace {
constexpr uint32_t kLinkOverhead = 14 + 2 * 4;  // Ethernet header and two VLAN tags
}

uint32_t receive_segments(uint32_t frame_bytes, uint32_t mtu) {
  const uint32_t room = frame_bytes - PacketPool::kHeadroom;
  return (mtu + kLinkOverhead + room - 1) / room;
}

uint32_t send_segments(const ibv_device_attr_ex& limits) {
  return static_cast<uint32_t>(
      std::clamp(limits.orig_attr.max_sge, 2, static_cast<int>(QueueShape::kMaxSegments)));
}

Result<QueueShape> shape_of(const ibv_device_attr_ex& limits, const PacketPool& pool,
                            const DeviceCaps& caps, const VerbsOptions& options) {
  const auto most = static_cast<uint32_t>(std::max(limits.orig_attr.max_qp_wr, 1));
  QueueShape s{};
  s.rx_segments = receive_segments(pool.frame_bytes(), caps.mtu);
  if (s.rx_segments > QueueShape::kMaxSegments ||
      s.rx_segments > static_cast<uint32_t>(limits.orig_attr.max_sge))
    return fail(ENOTSUP, "MTU needs more receive segments than the device has");
  s.tx_slots = std::min(options.tx_frames, most);
  s.tx_segments = send_segments(limits);
  // At most half of the frames: the rest is for sending and for packets that are read late.
  s.rx_slots = std::max(1U, std::min({options.rx_frames, most, pool.size() / 2 / s.rx_segments}));
  s.signal_every = std::max(1U, std::min(options.signal_every, s.tx_slots / 4));
  s.refill = options.refill_receives;
  s.checksums = caps.tx_l4 == Checksum::kOffload;
  return s;
}

}  // namespace vireo::verbs
