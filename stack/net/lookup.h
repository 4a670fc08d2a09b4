// Routes a packet: rules, longest prefix, metric, source address, neighbour, by Linux's policy
// (ip-rule(8), net/ipv4/route.c and net/ipv6/route.c for behaviour, RFC 6724 for IPv6 source
// addresses). Owner: none (pure functions of a snapshot). Thread: any. Off the hot path: some
// hundred nanoseconds, no allocation.
#pragma once

#include <cstdint>

#include "core/address.h"
#include "core/result.h"
#include "core/types.h"
#include "stack/net/neighbours.h"
#include "stack/net/snapshot.h"

namespace vireo::net {

struct LookupKey {
  IpAddr dst{};
  IpAddr src{};       ///< unspecified (of either family): choose one
  IfIndex oif{};      ///< SO_BINDTODEVICE, IP_UNICAST_IF, IP_MULTICAST_IF or sin6_scope_id; 0: any
  uint32_t mark = 0;  ///< SO_MARK
  uint8_t tos = 0;    ///< IP_TOS
  uint32_t uid = 0;   ///< of the socket's owner, for rules with a uid range
  IpProto proto = IpProto::kTcp;
  uint16_t sport = 0, dport = 0;  ///< host order; for rules with ports, and the flow hash
  uint32_t flow_hash = 0;         ///< chooses among equal routes; 0: made from addresses and ports
  /// As connect(2): a chosen IPv4 source address takes part in a second look-up. False: as
  /// sendto(2).
  bool connected = true;

  bool operator==(const LookupKey&) const = default;
};

enum class DestKind : uint8_t {
  kUnicast,
  kLocal,  ///< one of our own addresses or loopback: leave it to the kernel
  kMulticast,
  kBroadcast,
};

struct NextHop {
  DestKind kind = DestKind::kUnicast;
  IfIndex ifindex{};  ///< the interface of the route
  IfIndex carrier{};  ///< the one whose device carries the frames: `ifindex`, or what is beneath a
                      ///< VLAN; 0: cannot be carried
  VlanId vlan{};      ///< tag to send with; 0: none
  IpAddr src{};       ///< the key's, or the chosen one (0.0.0.0 or :: if there is none)
  IpAddr via{};       ///< gateway, or the destination: whom request_neighbour() must ask for
  Mac src_mac{};
  Mac dst_mac{};  ///< valid if is_usable(neighbour)
  NeighbourState neighbour =
      NeighbourState::kNone;  ///< kNoArp for multicast, broadcast, and links without ARP
  uint32_t mtu = 0;           ///< largest IP packet: the route's MTU, else the interface's
  uint32_t advmss = 0;        ///< the route's RTAX_ADVMSS, 0: from the MTU
  uint32_t table = 0;         ///< the routing table that answered; 0: none (assumed on link)
  uint64_t generation = 0;    ///< of the snapshot

  bool is_resolved() const { return is_usable(neighbour); }
};

/// True if the answer may depend on the ports: a rule names some, or a route has several ways out.
bool ports_matter(const Snapshot& snapshot);

/// Resolves `key` against `snapshot`.
/// Errors: ENETUNREACH no route; EHOSTUNREACH, EACCES, EINVAL unreachable, prohibit, blackhole
/// route; EINVAL also for a source address that is not ours (IPv4); ENODEV, ENETUNREACH for `oif`
/// gone or down; EADDRNOTAVAIL no IPv6 source address; EOPNOTSUPP: only the kernel can tell (VRF,
/// source routes, tunnels): use resolve().
Result<NextHop> lookup(const Snapshot& snapshot, const LookupKey& key);

/// The same asked of the kernel (RTM_GETROUTE), completed by links and neighbours of `snapshot`:
/// two to four system calls. Errors: as lookup(), and what socket(2) and sendto(2) return. Thread:
/// any of the mirror's network namespace.
Result<NextHop> kernel_lookup(const Snapshot& snapshot, const LookupKey& key);

/// lookup(), and where that answers EOPNOTSUPP, kernel_lookup().
Result<NextHop> resolve(const Snapshot& snapshot, const LookupKey& key);

/// Ethernet address of a multicast group (RFC 1112 §6.4, RFC 2464 §7).
Mac multicast_mac(const IpAddr& group);

}  // namespace vireo::net
