// IP addresses and transport endpoints: one type for both families, with IPv4 as v4-mapped (RFC
// 4291 §2.5.5.2). Owner: none (values). Thread: any.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "core/byteorder.h"
#include "core/types.h"

namespace vireo {

/// 16 bytes in network order. Default: the IPv6 unspecified address `::`.
class IpAddr {
 public:
  constexpr IpAddr() = default;
  static IpAddr v4(be32 a) {  ///< e.g. 10.0.0.1 from `be32(0x0a000001)`
    IpAddr r;
    const uint64_t low = uint64_t{a.raw()} << 32 | be32(0xffff).raw();
    std::memcpy(r.b_.data() + 8, &low, 8);
    return r;
  }
  static IpAddr v6(const uint8_t (&bytes)[16]);
  static IpAddr v6(const in6_addr& a) { return v6(a.s6_addr); }
  static constexpr IpAddr any_v4() {
    IpAddr r;
    r.b_[10] = r.b_[11] = 0xff;
    return r;
  }
  /// Parses dotted or colon notation (inet_pton(3)); nullopt if neither.
  static std::optional<IpAddr> parse(std::string_view text);

  bool is_v4() const { return lo32(0) == 0 && lo32(4) == 0 && lo32(8) == be32(0xffff).raw(); }
  be32 as_v4() const { return std::bit_cast<be32>(lo32(12)); }  ///< requires is_v4()
  const std::array<uint8_t, 16>& bytes() const { return b_; }
  in6_addr as_in6() const;
  int family() const { return is_v4() ? AF_INET : AF_INET6; }

  bool is_unspecified() const {  ///< 0.0.0.0 or ::
    return lo32(12) == 0 && (is_v4() || (lo32(0) | lo32(4) | lo32(8)) == 0);
  }
  bool is_loopback() const;  ///< 127/8 or ::1
  bool is_multicast() const { return is_v4() ? (b_[12] & 0xf0) == 0xe0 : b_[0] == 0xff; }
  bool is_link_local() const {  ///< fe80::/10 or 169.254/16
    return is_v4() ? b_[12] == 169 && b_[13] == 254 : b_[0] == 0xfe && (b_[1] & 0xc0) == 0x80;
  }
  bool is_limited_broadcast() const { return is_v4() && lo32(12) == UINT32_MAX; }
  /// True if the first `bits` bits (of 32 for IPv4, of 128 for IPv6) equal those of `net`; families
  /// must match.
  bool in_prefix(const IpAddr& net, unsigned bits) const;

  std::string str() const;  ///< inet_ntop(3) form
  auto operator<=>(const IpAddr&) const = default;
  bool operator==(const IpAddr& o) const {  // inline, which memcmp() of 16 bytes is not
    return ((half(0) ^ o.half(0)) | (half(8) ^ o.half(8))) == 0;
  }

 private:
  uint64_t half(unsigned at) const {
    uint64_t v;
    std::memcpy(&v, b_.data() + at, 8);
    return v;
  }
  uint32_t lo32(unsigned at) const {
    uint32_t v;
    std::memcpy(&v, b_.data() + at, 4);
    return v;
  }
  std::array<uint8_t, 16> b_{};
};

/// Address and port of one side. `scope` is the interface of a link-local IPv6 address, or the one
/// that its socket is bound to (SO_BINDTODEVICE), else 0.
struct Endpoint {
  IpAddr addr;
  uint16_t port = 0;  ///< host order
  uint32_t scope = 0;

  /// From AF_INET or AF_INET6; nullopt for other families or too short a length.
  static std::optional<Endpoint> from_sockaddr(const sockaddr* sa, socklen_t len);
  /// Writes a sockaddr of `family` (an IPv4 address becomes v4-mapped for AF_INET6). @return its
  /// length; bytes beyond it are unchanged.
  socklen_t to_sockaddr(sockaddr_storage& out, int family) const;
  sockaddr_in as_sockaddr_in() const {  ///< requires addr.is_v4()
    return {.sin_family = AF_INET,
            .sin_port = htons(port),
            .sin_addr = {.s_addr = addr.as_v4().raw()},
            .sin_zero = {}};
  }
  sockaddr_in6 as_sockaddr_in6() const;
  std::string str() const;  ///< 10.0.0.1:80 or [fe80::1]:80
  auto operator<=>(const Endpoint&) const = default;
};

enum class IpProto : uint8_t { kIcmp = 1, kTcp = 6, kUdp = 17, kIcmpV6 = 58 };

/// The key of a flow rule and of the demux. An unspecified remote (address and port) is a wildcard;
/// so is an unspecified local address.
struct FlowKey {
  IpProto proto = IpProto::kTcp;
  bool v6 = false;  ///< family, needed where addresses are wildcards
  VlanId vlan{};    ///< of its frames, for a device with DeviceCaps::vlan_rules or link_rules; 0:
                    ///< any; kUntagged
  Endpoint local;
  Endpoint remote;

  bool is_exact() const { return remote.port != 0; }
  bool operator==(const FlowKey&) const = default;
};

}  // namespace vireo
