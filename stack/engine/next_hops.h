// Routes of destinations: port, next hop, header and packet size, looked up in the kernel's tables
// and cached; requests to the kernel to resolve neighbours; and path MTU reports by routers
// (path_mtu.cpp).
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <array>

#include "core/carriage.h"
#include "stack/engine/flow.h"
#include "stack/engine/part.h"
#include "stack/engine/ports.h"
#include "stack/ip/icmp_error.h"
#include "stack/ip/pmtu.h"
#include "stack/net/lookup.h"
#include "stack/net/netlink.h"

namespace vireo {

struct Hub;

/// What to look a route up by. The result has the port and the source address.
struct RouteRequest {
  IpAddr dst;
  IpAddr src;     ///< unspecified: the kernel's choice
  IfIndex oif{};  ///< SO_BINDTODEVICE, scope of a link-local address, IP_MULTICAST_IF
  uint8_t tos = 0;
  IpProto proto = IpProto::kTcp;
  uint32_t mark = 0;   ///< SO_MARK
  bool hears = false;  ///< with `oif`: receives by no other interface
};
struct Route {
  net::NextHop hop;
  Port* port = nullptr;
};

class NextHops : Part {
 public:
  explicit NextHops(net::Mirror& mirror) : mirror_(mirror), pmtu_(FlowHashKey::random()) {}

  /// The carried interface and next hop for `request.dst`; opens the device if needed
  /// (milliseconds).
  Carried<Route> route(const RouteRequest& request);
  /// What route() finds, in the form that the choice of an engine needs.
  Carried<Reach> reach(const RouteRequest& request);
  /// Looks the next hop up again. Errors: EAGAIN the neighbour is unknown, or did not answer and is
  /// asked anew (not for datagrams: sending them by the kernel's socket makes the kernel ask); and
  /// those of the look-up. `e.mtu` and `e.port` are set even if the neighbour is unknown.
  Result<void> resolve(CachedRoute& e, IpProto proto, const Endpoint& local, const Endpoint& remote,
                       const IpSettings& ip, Instant now) noexcept;
  /// The same for a connection; also updates its MSS.
  Result<void> refresh(TcpFlow& f, Instant now) noexcept;

  // ---- packet sizes (path_mtu.cpp)
  /// Path MTU to `remote` over a link of `link_mtu`.
  uint32_t path_mtu(const IpAddr& remote, uint32_t link_mtu, Instant now) noexcept {
    return pmtu_.get(remote, link_mtu, now);
  }
  /// An ICMP report about a segment of `f` with sequence number `quoted`, or about a datagram.
  void path_mtu_reported(TcpFlow& f, Seq32 quoted, uint32_t mtu, Instant now) noexcept;
  void path_mtu_reported(const ip::IcmpError& e, Instant now) noexcept;
  void expire_path_mtus(Instant now) noexcept;
  Instant first_expiry() const noexcept { return pmtu_.first_expiry(); }

 private:
  struct Resolved {  ///< valid while the snapshot's generation is hop.generation
    net::LookupKey key;
    net::NextHop hop;
  };
  struct Asked {  ///< the last request to the kernel to resolve or confirm that neighbour
    IpAddr via;
    IfIndex ifindex{};
    Instant at{};
    bool to_confirm = false;
  };

  Result<net::NextHop> find(net::LookupKey key) noexcept;
  uint8_t tag_priority(const net::NextHop& hop, const IpSettings& ip) const noexcept;
  void ask_for_neighbour(const net::NextHop& hop, Instant now) noexcept;
  void forget_asked(const net::NextHop& hop) noexcept;

  Hub& hub() const noexcept;
  net::Mirror& mirror_;
  ip::PmtuTable pmtu_;
  std::array<Resolved, 8> resolved_;  ///< indexed by destination
  std::array<Asked, 8> asked_;        ///< indexed by the address's last byte
};

}  // namespace vireo
