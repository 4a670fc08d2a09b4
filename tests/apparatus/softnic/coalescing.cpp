#include "tests/apparatus/softnic/coalescing.h"

#include <infiniband/mlx5dv.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace vireo::softnic {
namespace {

constexpr uint8_t kPsh = 0x08, kAck = 0x10;
constexpr size_t kBareHeader = 20, kStamped = 32;
constexpr uint8_t kStampOption[] = {1, 1, 8, 10};
constexpr uint8_t kTcpAckAndData = 4;

template <class T>
T at(std::span<const std::byte> frame, size_t offset) {
  T v;
  std::memcpy(&v, frame.data() + offset, sizeof v);
  return v;
}
uint32_t seq_of(std::span<const std::byte> frame, const Headers& h) {
  return be32toh(at<uint32_t>(frame, h.l4_at + 4));
}
size_t header_of(std::span<const std::byte> frame, const Headers& h) {
  return (at<uint8_t>(frame, h.l4_at + 12) >> 4) * size_t{4};
}
uint8_t flags_of(std::span<const std::byte> frame, const Headers& h) {
  return at<uint8_t>(frame, h.l4_at + 13);
}

}  // namespace

bool Coalescing::is_fit(std::span<const std::byte> frame, const Headers& h, bool good) const {
  if (!good || h.proto != IPPROTO_TCP || h.l4_bytes == 0) return false;
  if (h.ip == Ip::k4 ? !v4_ || h.l4_at - h.l3_at != 20 : !v6_ || h.l4_at - h.l3_at != 40)
    return false;
  const size_t header = header_of(frame, h);
  if (header != kBareHeader &&
      (header != kStamped ||
       std::memcmp(frame.data() + h.l4_at + kBareHeader, kStampOption, sizeof kStampOption) != 0))
    return false;
  return (flags_of(frame, h) & ~kPsh) == kAck && h.l4_bytes >= header + kMinPayload &&
         frame.size() <= most_;
}

size_t Coalescing::find(const Headers& h) const {
  const auto is_of = [&](const Session& s) {
    return s.headers.ip == h.ip && s.headers.src == h.src && s.headers.dst == h.dst &&
           s.headers.src_port == h.src_port && s.headers.dst_port == h.dst_port;
  };
  return h.proto != IPPROTO_TCP
             ? sessions_.size()
             : static_cast<size_t>(std::ranges::find_if(sessions_, is_of) - sessions_.begin());
}

void Coalescing::begin(std::span<const std::byte> frame, const Headers& h, const Seen& seen) {
  Session s;
  s.headers = h;
  s.seen = seen;
  const size_t header = header_of(frame, h);
  s.next_seq = seq_of(frame, h);
  s.bytes.assign(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(h.l4_at + header));
  s.told.least_ttl = h.ttl;
  sessions_.push_back(std::move(s));
  (void)extend(sessions_.back(), frame, h, seen);
}

bool Coalescing::extend(Session& s, std::span<const std::byte> frame, const Headers& h,
                        const Seen& seen) {
  const size_t header = header_of(frame, h), payload = h.l4_bytes - header;
  const bool is_next = s.next_seq == seq_of(frame, h) && s.headers.l4_at == h.l4_at &&
                       header_of(s.bytes, s.headers) == header && s.headers.tos == h.tos &&
                       s.headers.vlan_tag == h.vlan_tag && s.headers.dst_mac == h.dst_mac &&
                       s.headers.src_mac == h.src_mac && s.seen.flow_tag == seen.flow_tag;
  if (!is_next || s.told.push || s.told.segments == UINT8_MAX || s.bytes.size() + payload > most_)
    return false;
  const auto from = frame.begin() + static_cast<ptrdiff_t>(h.l4_at + header);
  s.bytes.insert(s.bytes.end(), from, from + static_cast<ptrdiff_t>(payload));
  s.next_seq += static_cast<uint32_t>(payload);
  ++s.told.segments;
  s.told.least_ttl = std::min(s.told.least_ttl, h.ttl);
  s.told.push = (flags_of(frame, h) & kPsh) != 0;
  s.told.ack = at<uint32_t>(frame, h.l4_at + 8);
  s.told.window = at<uint16_t>(frame, h.l4_at + 14);
  s.told.has_stamps = header == kStamped;
  if (s.told.has_stamps)
    std::memcpy(s.told.stamps, frame.data() + h.l4_at + kBareHeader + sizeof kStampOption,
                sizeof s.told.stamps);
  s.seen.types = static_cast<uint8_t>((s.seen.types & 0x0f) | kTcpAckAndData << 4);
  return true;
}

}  // namespace vireo::softnic
