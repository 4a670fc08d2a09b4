// What nearly every frame is, read at fixed places: no VLAN tag, no IP options or extensions, not a
// fragment; in it a datagram, or a segment with ACK and perhaps PSH, and of options none or the
// timestamps laid out as RFC 7323 appendix A has them. Anything else is parse.h's to read.
// Owner: none, borrows the frame. Thread: any. Source: RFC 768, RFC 791, RFC 8200, RFC 9293, RFC
// 7323.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/address.h"
#include "core/byteorder.h"
#include "core/checksum.h"
#include "core/seq.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/ipv6.h"
#include "stack/wire/tcp.h"
#include "stack/wire/tcp_options.h"

namespace vireo::wire {

/// Ethernet and IP.
class PlainIp {
 public:
  /// @return the protocol it carries; 0: it is something else, and nothing else may be asked.
  unsigned read(const std::byte* frame, size_t bytes) noexcept {
    frame_ = frame;
    if (bytes < kEthernet + sizeof(Ipv4Header) + kLeastL4) return 0;
    if (word16(12) == static_cast<uint16_t>(EtherType::kIpv4)) [[likely]] {
      // Version, header length, fragment: differences, zero on a hit.
      if (((word16(14) & 0xff00) ^ 0x4500) | (word16(20) & 0x3fff)) return 0;
      const unsigned total = word16(16);
      if (total > bytes - kEthernet || total < sizeof(Ipv4Header)) return 0;
      v6_ = false;
      l4_at_ = kEthernet + sizeof(Ipv4Header);
      l4_bytes_ = total - static_cast<unsigned>(sizeof(Ipv4Header));
      return static_cast<uint8_t>(frame_[23]);
    }
    if (word16(12) != static_cast<uint16_t>(EtherType::kIpv6) ||
        bytes < kEthernet + sizeof(Ipv6Header) + kLeastL4 || (word16(14) >> 12) != 6)
      return 0;
    v6_ = true;
    l4_at_ = kEthernet + sizeof(Ipv6Header);
    l4_bytes_ = word16(18);
    return l4_bytes_ <= bytes - l4_at_ ? static_cast<uint8_t>(frame_[20]) : 0;
  }

  /// True if it came from `remote` to `local`.
  bool is_between(const Endpoint& local, const Endpoint& remote) const noexcept {
    const uint32_t ports = be32(uint32_t{remote.port} << 16 | local.port).raw();
    if (raw32(l4_at_) != ports) return false;
    if (!v6_) [[likely]] {
      const auto low = [](const IpAddr& a) {
        return checksum::detail::load<uint32_t>(a.bytes().data() + 12);
      };
      return ((raw32(26) ^ low(remote.addr)) | (raw32(30) ^ low(local.addr))) == 0 &&
             local.addr.is_v4();
    }
    const auto half = [](const IpAddr& a, unsigned at) {
      return checksum::detail::load<uint64_t>(a.bytes().data() + at);
    };
    return ((raw64(22) ^ half(remote.addr, 0)) | (raw64(30) ^ half(remote.addr, 8)) |
            (raw64(38) ^ half(local.addr, 0)) | (raw64(46) ^ half(local.addr, 8))) == 0;
  }
  IpAddr src() const noexcept { return address(v6_ ? 22 : 26); }
  IpAddr dst() const noexcept { return address(v6_ ? 38 : 30); }
  uint16_t src_port() const noexcept { return word16(l4_at_); }
  uint16_t dst_port() const noexcept { return word16(l4_at_ + 2); }

  bool is_marked() const noexcept {  ///< congestion experienced (RFC 3168)
    const unsigned bits =
        v6_ ? static_cast<uint8_t>(frame_[15]) >> 4 : static_cast<uint8_t>(frame_[15]);
    return (bits & 3) == static_cast<unsigned>(Ecn::kCe);
  }

  bool is_ip_sum_good() const noexcept {
    return v6_ || checksum::is_good(checksum::sum(frame_ + kEthernet, sizeof(Ipv4Header)));
  }
  /// Over all of the IP payload.
  bool is_l4_sum_good(IpProto proto) const noexcept {
    const checksum::Sum addresses =
        v6_ ? checksum::pseudo_v6(frame_ + 22, frame_ + 38, proto, l4_bytes_)
            : checksum::fold(uint64_t{raw32(26)} + raw32(30) +
                             checksum::word(static_cast<uint8_t>(proto)) +
                             checksum::word(static_cast<uint16_t>(l4_bytes_)));
    return checksum::is_good(addresses + checksum::sum(frame_ + l4_at_, l4_bytes_));
  }

 protected:
  static constexpr unsigned kEthernet = sizeof(EthernetHeader);
  static constexpr unsigned kLeastL4 = 8;  ///< a UDP header

  uint32_t raw32(size_t at) const noexcept { return checksum::detail::load<uint32_t>(frame_ + at); }
  uint64_t raw64(size_t at) const noexcept { return checksum::detail::load<uint64_t>(frame_ + at); }
  uint16_t raw16(size_t at) const noexcept { return checksum::detail::load<uint16_t>(frame_ + at); }
  uint16_t word16(size_t at) const noexcept { return std::byteswap(raw16(at)); }
  uint32_t word32(size_t at) const noexcept { return std::byteswap(raw32(at)); }
  IpAddr address(size_t at) const noexcept {
    if (!v6_) return IpAddr::v4(std::bit_cast<be32>(raw32(at)));
    uint8_t bytes[16];
    std::memcpy(bytes, frame_ + at, sizeof bytes);
    return IpAddr::v6(bytes);
  }

  const std::byte* frame_ = nullptr;
  unsigned l4_at_ = 0;
  unsigned l4_bytes_ = 0;
  bool v6_ = false;
};

class PlainTcp : public PlainIp {
 public:
  explicit PlainTcp(const PlainIp& ip) noexcept : PlainIp(ip) {}
  /// After read() said TCP. @return false: it is something else.
  bool read_tcp() noexcept {
    if (l4_bytes_ < sizeof(TcpHeader)) return false;
    const unsigned word = word16(l4_at_ + 12) & ~unsigned{static_cast<uint8_t>(TcpFlags::kPsh)};
    constexpr unsigned kAck = static_cast<uint8_t>(TcpFlags::kAck);
    header_bytes_ = sizeof(TcpHeader);
    if (word == (5U << 12 | kAck)) [[unlikely]]
      return true;
    header_bytes_ += kTimestampsBytes;
    return word == (8U << 12 | kAck) && l4_bytes_ >= header_bytes_ &&
           raw32(l4_at_ + 20) == be32(kTimestampsWord).raw();
  }

  Seq32 seq() const noexcept { return Seq32(word32(l4_at_ + 4)); }
  Seq32 ack() const noexcept { return Seq32(word32(l4_at_ + 8)); }
  uint16_t window() const noexcept { return word16(l4_at_ + 14); }
  bool has_timestamps() const noexcept { return header_bytes_ != sizeof(TcpHeader); }
  uint32_t ts_val() const noexcept { return word32(l4_at_ + 24); }
  uint32_t ts_echo() const noexcept { return word32(l4_at_ + 28); }
  unsigned payload_at() const noexcept { return l4_at_ + header_bytes_; }
  unsigned payload_bytes() const noexcept { return l4_bytes_ - header_bytes_; }

 private:
  unsigned header_bytes_ = 0;
};

class PlainUdp : public PlainIp {
 public:
  explicit PlainUdp(const PlainIp& ip) noexcept : PlainIp(ip) {}
  /// After read() said UDP. @return false: it is something else, or shorter than its IP packet.
  bool read_udp() const noexcept { return l4_bytes_ >= 8 && word16(l4_at_ + 4) == l4_bytes_; }
  bool has_sum() const noexcept { return raw16(l4_at_ + 6) != 0; }
  bool is_v6() const noexcept { return v6_; }
  unsigned payload_at() const noexcept { return l4_at_ + 8; }
  unsigned payload_bytes() const noexcept { return l4_bytes_ - 8; }

  /// Headers of this many bytes before the payload are those of a plain datagram over IPv4.
  static constexpr uint32_t kHeaders4 = kEthernet + sizeof(Ipv4Header) + 8;
  /// Where such a datagram came from, as it lies before its payload.
  static IpAddr src4(const std::byte* payload) noexcept {
    return IpAddr::v4(std::bit_cast<be32>(checksum::detail::load<uint32_t>(payload - 16)));
  }
  static uint16_t src_port4(const std::byte* payload) noexcept {
    return std::byteswap(checksum::detail::load<uint16_t>(payload - 8));
  }
};

}  // namespace vireo::wire
