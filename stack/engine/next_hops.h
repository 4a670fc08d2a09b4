// The way out: by which port, next hop, header and packet size a destination is reached, asked of
// the kernel's tables and kept; neighbours that the kernel is asked to resolve; and what routers
// say about the size of packets (path_mtu.cpp).
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

/// What a destination asks for; the answer says by which port and from which address.
struct RouteRequest {
  IpAddr dst;
  IpAddr src;     ///< unspecified: the kernel's choice
  IfIndex oif{};  ///< SO_BINDTODEVICE, scope of a link-local address, IP_MULTICAST_IF
  uint8_t tos = 0;
  IpProto proto = IpProto::kTcp;
  uint32_t mark = 0;   ///< SO_MARK
  bool hears = false;  ///< what comes by another interface than `oif` is not for it
};
struct Route {
  net::NextHop hop;
  Port* port = nullptr;
};

class NextHops : Part {
 public:
  explicit NextHops(net::Mirror& mirror) : mirror_(mirror), pmtu_(FlowHashKey::random()) {}

  /// By which carried interface `request.dst` is reached; opens the device if need be
  /// (milliseconds).
  Carried<Route> route(const RouteRequest& request);
  /// What route() finds, for who is to be placed.
  Carried<Reach> reach(const RouteRequest& request);
  /// Looks the way up again. Errors: EAGAIN the neighbour is not known, or did not answer and is
  /// asked anew (but for datagrams: who gives them to the kernel's socket asks thereby), and those
  /// of the look-up. `e.mtu` and `e.port` are set even if the neighbour is unknown.
  Result<void> resolve(Egress& e, IpProto proto, const Endpoint& local, const Endpoint& remote,
                       const IpSettings& ip, Instant now) noexcept;
  /// The same of a connection, whose MSS follows.
  Result<void> refresh(TcpFlow& f, Instant now) noexcept;

  // ---- packet sizes (path_mtu.cpp)
  /// Of packets to `remote` over a link of `link_mtu`.
  uint32_t path_mtu(const IpAddr& remote, uint32_t link_mtu, Instant now) noexcept {
    return pmtu_.get(remote, link_mtu, now);
  }
  /// A router said so: of a segment of `f` that has the number `quoted`, or of a datagram.
  void path_mtu_reported(TcpFlow& f, Seq32 quoted, uint32_t mtu, Instant now) noexcept;
  void path_mtu_reported(const ip::IcmpError& e, Instant now) noexcept;
  void expire_path_mtus(Instant now) noexcept;
  Instant first_expiry() const noexcept { return pmtu_.first_expiry(); }

 private:
  struct Resolved {  ///< holds while the snapshot has hop.generation
    net::LookupKey key;
    net::NextHop hop;
  };
  struct Asked {  ///< the kernel was, to resolve or confirm that neighbour
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
  std::array<Resolved, 8> resolved_;  ///< by where they go
  std::array<Asked, 8> asked_;        ///< by the address's last byte
};

}  // namespace vireo
