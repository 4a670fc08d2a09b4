// An Ethernet frame held by the relay: its bytes, the parsing of its headers, and corruption that a
// checksum detects. Owner: a direction of the relay.
#pragma once

#include <linux/if_ether.h>
#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "impairments.h"

namespace relay {

constexpr size_t kFrameMax = 10240;  // jumbo frames and a VLAN tag
constexpr size_t kTagBytes = 4;      // space at the front to reinsert a VLAN tag

struct Frame {
  uint32_t at = 0;
  uint32_t length = 0;
  std::array<uint8_t, kFrameMax> bytes;

  std::span<uint8_t> view() { return {bytes.data() + at, length}; }
};

/// Frames are large, so they are reused.
class FramePool {
 public:
  std::unique_ptr<Frame> get() {
    if (free_.empty()) return std::make_unique_for_overwrite<Frame>();
    auto frame = std::move(free_.back());
    free_.pop_back();
    return frame;
  }
  void put(std::unique_ptr<Frame> frame) { free_.push_back(std::move(frame)); }

 private:
  std::vector<std::unique_ptr<Frame>> free_;
};

inline uint16_t load16(const uint8_t* p) { return static_cast<uint16_t>(p[0] << 8 | p[1]); }

/// What the relay needs to know about a frame.
struct Shape {
  bool discovery = false;           // ARP, IPv6 neighbour discovery: passes unharmed
  std::span<uint8_t> covered = {};  // bytes covered by a checksum, which may be flipped
  std::span<uint8_t> l4 = {};       // TCP, or UDP with a checksum: header and payload
  size_t field = 0;                 // offset of the checksum in l4
  uint32_t pseudo = 0;              // sum of the pseudo-header, modulo 0xffff
};

/// The one's complement sum, modulo 0xffff, of a region at an even offset of the checksummed data.
inline uint32_t sum16(std::span<const uint8_t> bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) sum += i % 2 == 0 ? bytes[i] * 256u : bytes[i];
  return static_cast<uint32_t>(sum % 0xffff);
}

inline Shape inspect(std::span<uint8_t> frame) {
  Shape shape;
  if (frame.size() < ETH_HLEN) return shape;
  size_t at = 12;
  uint16_t type = load16(&frame[at]);
  while ((type == ETH_P_8021Q || type == ETH_P_8021AD) && at + 6 <= frame.size()) {
    at += 4;
    type = load16(&frame[at]);
  }
  at += 2;
  if (type == ETH_P_ARP) {
    shape.discovery = true;
    return shape;
  }
  uint8_t protocol = 0;
  size_t end = 0;
  std::span<const uint8_t> addresses;
  if (type == ETH_P_IP && at + 20 <= frame.size()) {
    const size_t header = size_t{frame[at] & 15u} * 4;
    if ((load16(&frame[at + 6]) & 0x3fff) != 0)
      return shape;  // fragments: the checksum is in the first only
    protocol = frame[at + 9];
    end = at + load16(&frame[at + 2]);
    addresses = frame.subspan(at + 12, 8);
    at += header;
  } else if (type == ETH_P_IPV6 && at + 40 <= frame.size()) {
    protocol = frame[at + 6];
    end = at + 40 + load16(&frame[at + 4]);
    addresses = frame.subspan(at + 8, 32);
    at += 40;
    shape.discovery =
        protocol == IPPROTO_ICMPV6 && at < frame.size() && frame[at] >= 130 && frame[at] <= 143;
  }
  if (end > frame.size()) return shape;
  size_t skip = 0;
  if (protocol == IPPROTO_TCP && at + 20 <= end) {
    skip = 4;
    shape.field = 16;
  } else if (protocol == IPPROTO_UDP && at + 8 <= end && load16(&frame[at + 6]) != 0) {
    skip = 8;
    shape.field = 6;
  } else {
    return shape;
  }
  shape.covered = frame.subspan(at + skip, end - at - skip);
  shape.l4 = frame.subspan(at, end - at);
  shape.pseudo = (sum16(addresses) + protocol + static_cast<uint32_t>(end - at)) % 0xffff;
  return shape;
}

/// Completes a checksum for which the sender left only the sum of the pseudo-header, as a NIC does.
inline void finish(std::span<uint8_t> frame) {
  const Shape shape = inspect(frame);
  if (shape.l4.empty()) return;
  const uint32_t sum = 0xffff - sum16(shape.l4);  // never 0, which in UDP means no checksum
  shape.l4[shape.field] = static_cast<uint8_t>(sum >> 8);
  shape.l4[shape.field + 1] = static_cast<uint8_t>(sum);
}

/// The receiver may take the frame for one with an unfinished checksum.
inline bool looks_unfinished(const Shape& shape) {
  return sum16(shape.l4.subspan(shape.field, 2)) == shape.pseudo;
}

/// Flips 1 to 3 bits, more if those cancel out, so that the checksum is wrong but does not look
/// unfinished (one frame in 65,535 would by chance). @return false if there is nothing to corrupt.
inline bool corrupt(const Shape& shape, const Dice& dice, uint64_t frame) {
  const std::span<uint8_t> bytes = shape.covered;
  if (bytes.empty()) return false;
  const bool keeps_field = bytes.data() > shape.l4.data() + shape.field;
  if (keeps_field && looks_unfinished(shape)) return false;
  const uint32_t before = sum16(bytes);
  const uint64_t flips = 1 + dice.roll(frame, Draw::bits) % 3;
  for (uint64_t i = 0, done = 0; i < 64; ++i) {
    const uint64_t bit = dice.roll(frame, Draw::bits, i + 1) % (bytes.size() * 8);
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    if (++done < flips) continue;
    if (!keeps_field && looks_unfinished(shape)) shape.l4[shape.field] ^= 1;
    if (sum16(bytes) != before) return true;
  }
  return sum16(bytes) != before;
}

}  // namespace relay
