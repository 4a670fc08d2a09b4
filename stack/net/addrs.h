// Addresses of the interfaces (RTM_NEWADDR; linux/if_addr.h), in the kernel's own order, which
// source selection uses. Owner: the snapshot that contains the table. Thread: any; a published
// table never changes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/address.h"
#include "core/types.h"

namespace vireo::net {

enum class AddrFlags : uint16_t {
  kNone = 0,
  kSecondary = 1,   ///< IPv4: not the first of its subnet. (For IPv6 this bit is kTemporary.)
  kTemporary = 2,   ///< IPv6 privacy address (RFC 8981)
  kDeprecated = 4,  ///< RFC 4862: not for new connections
  kTentative = 8,   ///< duplicate address detection not complete, and not optimistic
  kDadFailed = 16,
};

}  // namespace vireo::net

template <>
inline constexpr bool vireo::kIsFlags<vireo::net::AddrFlags> = true;

namespace vireo::net {

/// rtnetlink's rtm_scope and ifa_scope: a larger number is a narrower scope.
enum class Scope : uint8_t { kUniverse = 0, kSite = 200, kLink = 253, kHost = 254, kNowhere = 255 };

struct Addr {
  IfIndex ifindex{};
  IpAddr addr{};
  IpAddr prefix{};  ///< the subnet's address: `addr`, or the peer's on a point-to-point interface
  uint8_t prefix_len = 0;
  Scope scope = Scope::kUniverse;
  AddrFlags flags = AddrFlags::kNone;
  std::optional<IpAddr> broadcast{};

  bool operator==(const Addr&) const = default;
};

/// In the order of the kernel's dump: by interface, then in the kernel's order.
struct Addrs {
  std::vector<Addr> all;

  /// The entry of an own address; on `ifindex` if that is not 0.
  const Addr* find(const IpAddr& addr, IfIndex ifindex = {}) const;
  bool operator==(const Addrs&) const = default;
};

}  // namespace vireo::net
