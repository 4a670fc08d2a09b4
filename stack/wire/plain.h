// Reads plain frames, the most common ones, at fixed offsets: no VLAN tag, no IP options or
// extensions, no fragment; a UDP datagram, or a TCP segment with ACK and perhaps PSH, with no
// options but the timestamps as laid out in RFC 7323 appendix A. parse.h reads all others. One
// class for each version of IP, so that the offsets are constants.
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

/// Addresses and ports as they are stored in frames from `remote` to `local`, which are of this IP
/// version.
template <bool kV6>
struct PlainPath {
  PlainPath() = default;
  PlainPath(const Endpoint& local, const Endpoint& remote) noexcept
      : ports(be32(uint32_t{remote.port} << 16 | local.port).raw()) {
    constexpr unsigned kFrom = kV6 ? 0 : 12;  // offset of a mapped IPv4 address
    auto* const to = reinterpret_cast<std::byte*>(addresses);
    std::memcpy(to, remote.addr.bytes().data() + kFrom, 16 - kFrom);
    std::memcpy(to + 16 - kFrom, local.addr.bytes().data() + kFrom, 16 - kFrom);
  }
  static constexpr unsigned kWords = kV6 ? 4 : 1;
  uint64_t addresses[kWords] = {};
  uint32_t ports = 0;
};

/// Ethernet and IP.
template <bool kV6>
class PlainIp {
 public:
  /// @return the protocol in it; 0: not a plain frame, and no other function may be called.
  unsigned read(const std::byte* frame, size_t bytes) noexcept {
    frame_ = frame;
    constexpr EtherType kType = kV6 ? EtherType::kIpv6 : EtherType::kIpv4;
    if (bytes < kL4At + kMinL4 || raw16(12) != be16(static_cast<uint16_t>(kType)).raw()) return 0;
    if constexpr (kV6) {
      if ((static_cast<uint8_t>(frame_[14]) >> 4) != 6) return 0;
      l4_bytes_ = word16(18);
      return l4_bytes_ <= bytes - kL4At ? static_cast<uint8_t>(frame_[20]) : 0;
    }
    // Version, header length, fragment.
    constexpr uint16_t kFragment = be16(uint16_t{0x3fff}).raw();
    if (static_cast<uint8_t>(frame_[14]) != 0x45 || (raw16(20) & kFragment) != 0) return 0;
    // A total length below the header's own wraps to a value that no frame has.
    l4_bytes_ = word16(16) - static_cast<unsigned>(sizeof(Ipv4Header));
    return l4_bytes_ <= bytes - kL4At ? static_cast<uint8_t>(frame_[23]) : 0;
  }

  /// True if the frame is from that path.
  bool is_on(const PlainPath<kV6>& path) const noexcept {
    uint64_t miss = raw32(kL4At) ^ path.ports;
    for (unsigned i = 0; i < PlainPath<kV6>::kWords; ++i)
      miss |= raw64(kAddressesAt + 8 * i) ^ path.addresses[i];
    return miss == 0;
  }
  IpAddr src() const noexcept { return address(kAddressesAt); }
  IpAddr dst() const noexcept { return address(kAddressesAt + (kV6 ? 16 : 4)); }
  uint16_t src_port() const noexcept { return word16(kL4At); }
  uint16_t dst_port() const noexcept { return word16(kL4At + 2); }

  bool is_marked() const noexcept {  ///< congestion experienced (RFC 3168)
    const unsigned bits =
        kV6 ? static_cast<uint8_t>(frame_[15]) >> 4 : static_cast<uint8_t>(frame_[15]);
    return (bits & 3) == static_cast<unsigned>(Ecn::kCe);
  }

  bool is_ip_sum_good() const noexcept {
    return kV6 || checksum::is_good(checksum::add(checksum::add(raw64(14), raw64(22)), raw32(30)));
  }

 protected:
  /// Unfolded sum of the pseudo-header.
  uint64_t pseudo_sum(IpProto proto) const noexcept {
    if constexpr (kV6) return checksum::pseudo_v6(frame_ + 22, frame_ + 38, proto, l4_bytes_);
    // Words of at most 17 bits, added to both addresses.
    return checksum::add(raw64(kAddressesAt),
                         uint64_t{checksum::word(static_cast<uint8_t>(proto))} +
                             checksum::word(static_cast<uint16_t>(l4_bytes_)));
  }

  static constexpr unsigned kEthernet = sizeof(EthernetHeader);
  static constexpr unsigned kL4At = kEthernet + (kV6 ? sizeof(Ipv6Header) : sizeof(Ipv4Header));
  static constexpr unsigned kAddressesAt = kV6 ? 22 : 26;
  static constexpr unsigned kMinL4 = 8;  ///< a UDP header

  uint32_t raw32(size_t at) const noexcept { return checksum::detail::load<uint32_t>(frame_ + at); }
  uint64_t raw64(size_t at) const noexcept { return checksum::detail::load<uint64_t>(frame_ + at); }
  uint16_t raw16(size_t at) const noexcept { return checksum::detail::load<uint16_t>(frame_ + at); }
  uint16_t word16(size_t at) const noexcept { return std::byteswap(raw16(at)); }
  uint32_t word32(size_t at) const noexcept { return std::byteswap(raw32(at)); }
  IpAddr address(size_t at) const noexcept {
    if constexpr (!kV6) return IpAddr::v4(std::bit_cast<be32>(raw32(at)));
    uint8_t bytes[16];
    std::memcpy(bytes, frame_ + at, sizeof bytes);
    return IpAddr::v6(bytes);
  }

  const std::byte* frame_ = nullptr;
  unsigned l4_bytes_ = 0;
};

template <bool kV6>
class PlainTcp : public PlainIp<kV6> {
  using Ip = PlainIp<kV6>;

 public:
  explicit PlainTcp(const Ip& ip) noexcept : Ip(ip) {}
  /// Call if read() returned TCP. @return false: not a plain segment.
  bool read_tcp() noexcept {
    // Header length and flags, in wire order.
    constexpr auto kPsh = static_cast<uint16_t>(TcpFlags::kPsh);
    constexpr auto kAck = static_cast<uint16_t>(TcpFlags::kAck);
    constexpr unsigned kMask = be16(static_cast<uint16_t>(~kPsh)).raw();
    const unsigned word = Ip::raw16(Ip::kL4At + 12) & kMask;
    header_bytes_ = sizeof(TcpHeader) + kTimestampsBytes;
    if (word == be16(8U << 12 | kAck).raw()) [[likely]]
      return Ip::l4_bytes_ >= header_bytes_ &&
             Ip::raw32(Ip::kL4At + 20) == be32(kTimestampsWord).raw();
    header_bytes_ = sizeof(TcpHeader);
    return word == be16(5U << 12 | kAck).raw() && Ip::l4_bytes_ >= header_bytes_;
  }

  uint64_t numbers() const noexcept { return Ip::raw64(Ip::kL4At + 4); }  ///< segment_numbers()
  Seq32 seq() const noexcept { return Seq32(Ip::word32(Ip::kL4At + 4)); }
  Seq32 ack() const noexcept { return Seq32(Ip::word32(Ip::kL4At + 8)); }
  uint16_t window() const noexcept { return Ip::word16(Ip::kL4At + 14); }
  bool has_timestamps() const noexcept { return header_bytes_ != sizeof(TcpHeader); }
  uint32_t ts_val() const noexcept { return Ip::word32(Ip::kL4At + 24); }
  uint32_t ts_echo() const noexcept { return Ip::word32(Ip::kL4At + 28); }
  bool is_l4_sum_good() const noexcept {
    uint64_t sum = Ip::pseudo_sum(IpProto::kTcp);
    if (!has_timestamps()) [[unlikely]]
      return checksum::is_good(
          checksum::add(sum, checksum::sum_unfolded(Ip::frame_ + Ip::kL4At, Ip::l4_bytes_)));
    for (unsigned at = Ip::kL4At; at != kTextAt; at += 8) sum = checksum::add(sum, Ip::raw64(at));
    const size_t n = payload_bytes();
    return checksum::is_good(
        checksum::add(sum, n < 8 ? checksum::detail::tiny<false>(nullptr, Ip::frame_ + kTextAt, n)
                                 : checksum::sum_unfolded(Ip::frame_ + kTextAt, n)));
  }
  unsigned payload_at() const noexcept { return Ip::kL4At + header_bytes_; }
  unsigned payload_bytes() const noexcept { return Ip::l4_bytes_ - header_bytes_; }

 private:
  static constexpr unsigned kTextAt =
      Ip::kL4At + unsigned{sizeof(TcpHeader)} + unsigned{kTimestampsBytes};  ///< after them
  unsigned header_bytes_ = 0;
};

template <bool kV6>
class PlainUdp : public PlainIp<kV6> {
  using Ip = PlainIp<kV6>;

 public:
  explicit PlainUdp(const Ip& ip) noexcept : Ip(ip) {}
  /// Call if read() returned UDP. @return false: not plain, or shorter than its IP packet.
  bool read_udp() const noexcept {
    return Ip::word16(Ip::kL4At + 4) == Ip::l4_bytes_ && Ip::l4_bytes_ >= 8;
  }
  /// True if the checksum is right, or absent over IPv4.
  bool is_l4_sum_good() const noexcept {
    if (Ip::raw16(Ip::kL4At + 6) == 0) return !kV6;
    return checksum::is_good(
        checksum::add(Ip::pseudo_sum(IpProto::kUdp),
                      checksum::sum_unfolded(Ip::frame_ + Ip::kL4At, Ip::l4_bytes_)));
  }
  unsigned payload_at() const noexcept { return Ip::kL4At + 8; }
  unsigned payload_bytes() const noexcept { return Ip::l4_bytes_ - 8; }
};

/// Header bytes of a plain datagram over IPv4.
constexpr uint32_t kPlainUdp4Headers = sizeof(EthernetHeader) + sizeof(Ipv4Header) + 8;
/// Addresses and ports of such a datagram, read from before its payload: in network order.
inline uint32_t plain_udp4_src(const std::byte* payload) noexcept {
  return checksum::detail::load<uint32_t>(payload - 16);
}
inline uint32_t plain_udp4_dst(const std::byte* payload) noexcept {
  return checksum::detail::load<uint32_t>(payload - 12);
}
inline uint16_t plain_udp4_src_port(const std::byte* payload) noexcept {
  return checksum::detail::load<uint16_t>(payload - 8);
}
inline uint16_t plain_udp4_dst_port(const std::byte* payload) noexcept {
  return checksum::detail::load<uint16_t>(payload - 6);
}

}  // namespace vireo::wire
