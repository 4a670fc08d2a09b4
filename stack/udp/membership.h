// The multicast groups one socket has joined, and from whom it wants to hear: plain data.
// The kernel's socket beneath is joined too and sends the IGMP or MLD reports; this table only
// decides delivery, by the same rules and with the same errors as Linux (ip_mc_source,
// ip_mc_sf_allow; ip(7), RFC 3678). Owner: the UDP flow. Thread: changes and look-ups under the
// engine's lock. Changes may allocate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/address.h"
#include "core/result.h"
#include "core/types.h"

namespace vireo::udp {

enum class SourceMode : uint8_t {
  kExclude,  ///< all sources but the listed (an ordinary join: none is listed)
  kInclude,  ///< the listed sources only
};

struct Group {
  IpAddr group;
  IfIndex ifindex{};
  SourceMode mode = SourceMode::kExclude;
  std::vector<IpAddr> sources;
};

enum class Heard : uint8_t { kYes, kNotMember, kSourceFiltered };

class Membership {
 public:
  static constexpr size_t kMaxGroups = 20;     ///< net.ipv4.igmp_max_memberships; IPv4 only
  static constexpr size_t kMaxSourcesV4 = 10;  ///< net.ipv4.igmp_max_msf
  static constexpr size_t kMaxSourcesV6 = 64;  ///< net.ipv6.mld_max_msf

  /// IP_ADD_MEMBERSHIP, MCAST_JOIN_GROUP. Errors: EINVAL not a group, EADDRINUSE joined already,
  /// ENOBUFS too many.
  Result<void> join(const IpAddr& group, IfIndex ifindex);
  /// IP_DROP_MEMBERSHIP, MCAST_LEAVE_GROUP. Errors: EADDRNOTAVAIL not joined.
  Result<void> leave(const IpAddr& group, IfIndex ifindex);
  /// IP_ADD_SOURCE_MEMBERSHIP, MCAST_JOIN_SOURCE_GROUP: joins if need be. Errors: EINVAL the group
  /// excludes sources, EADDRNOTAVAIL listed already, ENOBUFS too many.
  Result<void> join_source(const IpAddr& group, const IpAddr& source, IfIndex ifindex);
  /// IP_DROP_SOURCE_MEMBERSHIP; with its last source the group is left.
  Result<void> leave_source(const IpAddr& group, const IpAddr& source, IfIndex ifindex);
  /// IP_BLOCK_SOURCE. Errors: EINVAL not joined, or the group includes sources.
  Result<void> block(const IpAddr& group, const IpAddr& source, IfIndex ifindex);
  /// IP_UNBLOCK_SOURCE. Errors: EINVAL as block(), EADDRNOTAVAIL not blocked.
  Result<void> unblock(const IpAddr& group, const IpAddr& source, IfIndex ifindex);
  /// IP_MSFILTER, MCAST_MSFILTER: replaces mode and list. An empty include list leaves the group.
  Result<void> set_filter(const IpAddr& group, IfIndex ifindex, SourceMode mode,
                          std::vector<IpAddr> sources);

  /// Whether a datagram to `group` from `source` that came in at `ifindex` is for the socket.
  /// `all`: IP_MULTICAST_ALL, what counts where the socket has not joined.
  Heard hears(const IpAddr& group, const IpAddr& source, IfIndex ifindex, bool all) const noexcept {
    for (const Group& g : groups_) {
      // As Linux: IPv6 looks for the group on any interface.
      if (g.group != group || (group.is_v4() && g.ifindex != ifindex)) continue;
      if (g.mode == SourceMode::kExclude && g.sources.empty()) [[likely]]
        return Heard::kYes;
      const bool listed = std::find(g.sources.begin(), g.sources.end(), source) != g.sources.end();
      return listed == (g.mode == SourceMode::kInclude) ? Heard::kYes : Heard::kSourceFiltered;
    }
    return all ? Heard::kYes : Heard::kNotMember;
  }

  const std::vector<Group>& groups() const noexcept { return groups_; }

 private:
  Group* find(const IpAddr& group, IfIndex ifindex) noexcept;
  Result<void> add_source(Group& g, SourceMode mode, const IpAddr& source);
  Result<void> remove_source(Group& g, SourceMode mode, const IpAddr& source);
  void erase(const Group& g);

  std::vector<Group> groups_;
};

}  // namespace vireo::udp
