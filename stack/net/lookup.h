// Output routing: rules, longest prefix, metric, source address, neighbour, by Linux's policy
// (ip-rule(8); behaviour of net/ipv4/route.c and net/ipv6/route.c; RFC 6724 for IPv6 source
// addresses).
// Owner: none (pure functions of a snapshot). Thread: any. Not on the hot path: some hundred
// nanoseconds, no allocation.
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
  uint32_t flow_hash = 0;         ///< selects among equal routes; 0: computed from addresses and
                                  ///< ports
  /// True: as connect(2), which looks up again with the chosen IPv4 source address. False: as
  /// sendto(2).
  bool connected = true;

  bool operator==(const LookupKey&) const = default;
};

enum class DestKind : uint8_t {
  kUnicast,
  kLocal,  ///< an own address or loopback: left to the kernel
  kMulticast,
  kBroadcast,
};

struct NextHop {
  DestKind kind = DestKind::kUnicast;
  IfIndex ifindex{};  ///< the interface of the route
  IfIndex carrier{};  ///< the interface whose device sends the frames: `ifindex`, or the one
                      ///< beneath a VLAN; 0: not carried
  VlanId vlan{};      ///< VLAN tag; 0: none
  IpAddr src{};       ///< the key's, or the chosen one (0.0.0.0 or :: if there is none)
  IpAddr via{};       ///< gateway, or the destination: the address for request_neighbour()
  Mac src_mac{};
  Mac dst_mac{};  ///< valid if is_usable(neighbour)
  NeighbourState neighbour =
      NeighbourState::kNone;  ///< kNoArp for multicast, broadcast, and links without ARP
  uint32_t mtu = 0;           ///< largest IP packet: the route's MTU, else the interface's
  uint32_t advmss = 0;        ///< the route's RTAX_ADVMSS; 0: derived from the MTU
  uint32_t table = 0;         ///< the routing table of the route; 0: none (assumed on link)
  uint64_t generation = 0;    ///< of the snapshot

  bool is_resolved() const { return is_usable(neighbour); }
};

/// True if the result may depend on the ports: a rule has port ranges, or a route several next
/// hops.
bool ports_matter(const Snapshot& snapshot);

/// Resolves `key` against `snapshot`. Errors: ENETUNREACH no route; EHOSTUNREACH, EACCES, EINVAL
/// unreachable, prohibit, blackhole route; EINVAL also for a foreign source address (IPv4); ENODEV,
/// ENETUNREACH for `oif` gone or down; EADDRNOTAVAIL no IPv6 source address; EOPNOTSUPP: only the
/// kernel can answer (VRF, source routes, tunnels): use resolve().
Result<NextHop> lookup(const Snapshot& snapshot, const LookupKey& key);

/// The same by a query of the kernel (RTM_GETROUTE), completed by links and neighbours of
/// `snapshot`: two to four system calls. Errors: as lookup(), socket(2) and sendto(2). Thread: any
/// of the mirror's network namespace.
Result<NextHop> kernel_lookup(const Snapshot& snapshot, const LookupKey& key);

/// lookup(); if that returns EOPNOTSUPP, kernel_lookup().
Result<NextHop> resolve(const Snapshot& snapshot, const LookupKey& key);

/// Ethernet address of a multicast group (RFC 1112 §6.4, RFC 2464 §7).
Mac multicast_mac(const IpAddr& group);

}  // namespace vireo::net
