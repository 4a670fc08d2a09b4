// The header that all frames of a flow share, built once: Ethernet, VLAN tag, IPv4 or IPv6, TCP or
// UDP.
//
//   |dst src|tag?|type|IP: length, id, sum patched|TCP: seq ack flags window sum urgent, options|
//                                                 |UDP: length sum|
// The sums of constant fields are kept, so that a frame's checksums take a few additions; the
// payload's sum is known from the copy. Owner: the flow's egress. Thread: holder of the engine's
// lock; emit_* are const and may run in parallel.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/address.h"
#include "core/assert.h"
#include "core/checksum.h"
#include "core/types.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/tcp.h"
#include "stack/wire/tcp_options.h"

namespace vireo::wire {

/// Where the transport checksum is computed.
enum class L4Sum : uint8_t {
  kFull,    ///< in software
  kPseudo,  ///< by the device, from the pseudo-header's sum in the field
};

class HeaderTemplate {
 public:
  /// Ethernet 14, tag 4, IPv6 40, TCP 60; rounded up. Most bytes that emit_*() writes.
  static constexpr size_t kMaxBytes = 128;

  struct Params {
    MacAddr src_mac{};
    MacAddr dst_mac{};
    VlanId vlan{};  ///< 0: no tag
    IpProto proto = IpProto::kTcp;
    IpAddr src;  ///< same family as dst
    IpAddr dst;
    uint16_t src_port = 0;  ///< host order
    uint16_t dst_port = 0;
    uint8_t ttl = 64;
    uint8_t tos = 0;            ///< for TCP without ECN bits: those are in TcpFields
    bool dont_fragment = true;  ///< IPv4
    uint32_t flow_label = 0;    ///< IPv6, 20 bits
    uint8_t vlan_priority = 0;  ///< 0 to 7
  };
  static HeaderTemplate build(const Params& p) noexcept;

  HeaderTemplate() = default;
  explicit operator bool() const { return size_ != 0; }

  struct TcpFields {
    uint32_t seq = 0;
    uint32_t ack = 0;
    uint8_t flags = 0;
    uint16_t window = 0;
    uint16_t urgent = 0;
    std::span<const uint8_t> options;  ///< complete: a multiple of 4, at most 40 bytes
    uint32_t payload_bytes = 0;
    checksum::Sum payload_sum = 0;  ///< folded; read only with L4Sum::kFull
    uint16_t ip_id = 0;             ///< IPv4: may be 0 with DF (RFC 6864 §4.1)
    Ecn ecn = Ecn::kNotEct;         ///< added to tos
  };
  /// Writes the complete header: size() bytes and the options, and nothing beyond. @return bytes
  /// written.
  size_t emit_tcp(std::byte* out, const TcpFields& f, L4Sum mode = L4Sum::kFull) const noexcept;

  struct UdpFields {
    uint32_t payload_bytes = 0;     ///< at most 65527
    checksum::Sum payload_sum = 0;  ///< folded; read only with L4Sum::kFull
    uint16_t ip_id = 0;
  };
  /// As emit_tcp().
  size_t emit_udp(std::byte* out, const UdpFields& f, L4Sum mode = L4Sum::kFull) const noexcept {
    copy_fixed(out);
    const uint32_t l4_bytes = 8 + f.payload_bytes;
    const uint16_t length = std::byteswap(static_cast<uint16_t>(l4_bytes));
    std::byte* const udp = out + l4_at_;
    std::memcpy(udp + 4, &length, 2);
    uint64_t sum = uint64_t{l4_sum_} + length;
    if (mode == L4Sum::kFull) sum += uint64_t{ports_} + length + f.payload_sum;
    put_sum(udp + 6, sum, mode, true);
    patch_ip(out, l4_bytes, f.ip_id, 0);
    return size_;
  }

  // ---- the most common frames, IPv4 without a tag: fixed offsets; the result equals that of
  // emit_tcp() and emit_udp()
  static constexpr size_t kPlainTcp = 66;  ///< bytes, with timestamps
  static constexpr size_t kPlainUdp = 42;
  bool is_plain_tcp() const { return size_ == kPlainTcp - kTimestampBytes; }
  bool is_plain_udp() const { return size_ == kPlainUdp; }

  /// A segment with timestamps; the IP identification is 0.
  struct PlainFields {
    uint32_t seq;
    uint32_t ack;
    uint8_t flags;
    uint16_t window;
    uint32_t ts_val;
    uint32_t ts_echo;
    uint32_t payload_bytes;
    uint64_t payload_sum;  ///< need not be folded
  };
  /// Writes kPlainTcp bytes. Requires is_plain_tcp().
  void emit_plain_tcp(std::byte* out, const PlainFields& f) const noexcept {
    const auto l4_bytes = static_cast<uint32_t>(kPlainTcp - kPlainL4 + f.payload_bytes);
    emit_plain_ip(out, l4_bytes);
    const uint64_t numbers = segment_numbers(Seq32(f.seq), Seq32(f.ack));
    const uint32_t word = 0x80U | uint32_t{f.flags} << 8 | uint32_t{std::byteswap(f.window)} << 16;
    const uint32_t kind = be32(kTimestampsWord).raw();
    const uint64_t stamps = uint64_t{std::byteswap(f.ts_echo)} << 32 | std::byteswap(f.ts_val);
    const uint64_t rest =
        uint64_t{l4_sum_} + checksum::word(static_cast<uint16_t>(l4_bytes)) + ports_ + word + kind;
    const uint64_t sum =
        checksum::add(checksum::add(checksum::add(numbers, stamps), rest), f.payload_sum);
    const uint32_t sum_and_urgent = checksum::finish(sum).raw();
    std::byte* const tcp = out + kPlainL4;
    std::memcpy(tcp + 4, &numbers, 8);
    std::memcpy(tcp + 12, &word, 4);
    std::memcpy(tcp + 16, &sum_and_urgent, 4);
    std::memcpy(tcp + 20, &kind, 4);
    std::memcpy(tcp + 24, &stamps, 8);
  }
  /// Writes kPlainUdp bytes, with IP identification 0. Requires is_plain_udp().
  void emit_plain_udp(std::byte* out, uint32_t payload_bytes, uint64_t payload_sum) const noexcept {
    const uint32_t l4_bytes = 8 + payload_bytes;
    emit_plain_ip(out, l4_bytes);
    const uint32_t length = checksum::word(static_cast<uint16_t>(l4_bytes));
    const uint64_t sum = checksum::add(uint64_t{l4_sum_} + ports_ + length + length, payload_sum);
    const uint32_t length_and_sum = length | uint32_t{checksum::finish_udp(sum).raw()} << 16;
    std::memcpy(out + kPlainL4 + 4, &length_and_sum, 4);
  }

  size_t size() const { return size_; }  ///< without TCP options
  unsigned l3_at() const { return l3_at_; }
  unsigned l4_at() const { return l4_at_; }
  bool is_v6() const { return v6_; }

 private:
  static constexpr size_t kTimestampBytes = 12;  ///< in most segments (RFC 7323 §A)
  static constexpr size_t kPlainL4 = 34;         ///< Ethernet 14, IPv4 20

  /// Writes everything up to the ports. Each word is written once, also those with variable fields.
  void emit_plain_ip(std::byte* out, uint32_t l4_bytes) const noexcept {
    const std::byte* const from = bytes_.data();
    const uint32_t total = checksum::word(static_cast<uint16_t>(20 + l4_bytes));
    const uint32_t sum = ip_sum_ + total;  // 17 bits: one step folds them
    const auto field = static_cast<uint16_t>(~(sum + (sum >> 16)));
    std::memcpy(out, from, 16);
    std::memcpy(out + 16, &total, 4);  // and the identification, which is zero
    std::memcpy(out + 20, from + 20, 4);
    std::memcpy(out + 24, &field, 2);
    std::memcpy(out + 26, from + 26, 8);
    std::memcpy(out + 34, from + 34, 4);
  }

  /// Copies 42 to 78 bytes in three overlapping pieces: a copy of unknown length would be a call.
  void copy_fixed(std::byte* out) const noexcept {
    const std::byte* const from = bytes_.data();
    const size_t middle = size_ / 2U - 8;
    const size_t last = size_ - 32U;
    std::memcpy(out, from, 32);
    std::memcpy(out + middle, from + middle, 16);
    std::memcpy(out + last, from + last, 32);
  }
  static void put_sum(std::byte* field, uint64_t sum, L4Sum mode, bool udp) noexcept {
    be16 v;
    if (mode == L4Sum::kFull)
      v = udp ? checksum::finish_udp(sum) : checksum::finish(sum);
    else
      v = std::bit_cast<be16>(static_cast<uint16_t>(checksum::fold(sum)));
    std::memcpy(field, &v, 2);
  }
  void patch_ip(std::byte* out, uint32_t l4_bytes, uint16_t ip_id, uint8_t ecn) const noexcept {
    std::byte* const ip = out + l3_at_;
    if (v6_) {
      const uint16_t length = std::byteswap(static_cast<uint16_t>(l4_bytes));
      std::memcpy(ip + 4, &length, 2);
      ip[1] |= static_cast<std::byte>(ecn << 4);
      return;
    }
    const uint16_t total = std::byteswap(static_cast<uint16_t>(20 + l4_bytes));
    const uint16_t id = std::byteswap(ip_id);
    const uint16_t class_added = std::byteswap(uint16_t{ecn});
    const be16 sum = checksum::finish(uint64_t{ip_sum_} + total + id + class_added);
    ip[1] |= static_cast<std::byte>(ecn);
    std::memcpy(ip + 2, &total, 2);
    std::memcpy(ip + 4, &id, 2);
    std::memcpy(ip + 10, &sum, 2);
  }

  std::array<std::byte, 80> bytes_{};  ///< 18 + 40 + 20 at most
  uint32_t l4_sum_ = 0;                ///< pseudo-header without the length
  uint32_t ports_ = 0;                 ///< both ports, in wire order
  uint16_t ip_sum_ = 0;                ///< IPv4 header without length and id
  uint8_t size_ = 0;
  uint8_t l3_at_ = 0;
  uint8_t l4_at_ = 0;
  bool v6_ = false;
};
static_assert(sizeof(HeaderTemplate) == 96);

}  // namespace vireo::wire
