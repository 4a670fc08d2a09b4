// Other sockets of the host at ports of ours (SO_REUSEADDR, SO_REUSEPORT): other processes', and
// those of this process that the kernel serves. While one of them is to get datagrams of a key, no
// rule takes these from the kernel, which delivers them to all, to ours by the sockets beneath.
//
// Owner: UdpFlows. Guard: the engine's lock.
#pragma once

#include <span>
#include <vector>

#include "stack/engine/flow.h"
#include "stack/net/inet_diag.h"

namespace vireo {

class PortSharers {
 public:
  /// What the kernel has at `port`, sockets beneath ours included. @return whether that is new.
  bool heed(uint16_t port, std::vector<net::DiagSocket> there);
  /// Nobody looks at `port` any more. @return whether anybody has.
  bool forget(uint16_t port);
  /// `cookie` is of one of ours whose flow is about to be opened; 0: no longer.
  void expect(uint64_t cookie) { opening_ = cookie; }
  /// Whether one of them gets datagrams of the key. `flows`: ours. Not asked of ports that only
  /// sockets without a cookie have.
  bool has(const UdpBinding& b, std::span<UdpFlow* const> flows) const noexcept;

  /// Whether the kernel would give datagrams of `key` to `s`, of whatever process, if it got them
  /// all. Not if it prefers the sockets of the key, as it does those bound to an address. `device`:
  /// the one that the key's sockets are bound to; 0: none. As net/ipv4/udp.c compute_score() and
  /// __udp_is_mcast_sock(), net/ipv6/udp.c likewise. A socket at the wildcard address may hear any
  /// group (IP_MULTICAST_ALL).
  static bool gets(const net::DiagSocket& s, const DemuxKey& key, IfIndex device) noexcept;

 private:
  struct Port {
    uint16_t number;
    std::vector<net::DiagSocket> sockets;
  };
  std::vector<Port> ports_;
  uint64_t opening_ = 0;
};

}  // namespace vireo
