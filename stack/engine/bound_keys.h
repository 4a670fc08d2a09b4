// Demux keys of flows bound without a peer: one local address or all of them, one address family or
// both, and multicast groups. Several UDP flows, or several listeners, may share a key; a list
// behind the key holds them.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <vector>

#include "core/carriage.h"
#include "stack/engine/flow.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;

class BoundKeys : Part {
 public:
  /// What is bound to `local` and `port`, or to the wildcard address and `port`; 0: nothing. To a
  /// group only what may hear it.
  Demux::Ref find(IpProto proto, const IpAddr& local, uint16_t port) noexcept;
  /// Binds all keys of a flow; of a UDP flow, which is in UdpFlows::bound(), with their rules.
  /// Errors: EADDRINUSE; the devices'.
  Carried<void> bind(Flow& f);
  void unbind(Flow& f) noexcept;

  // ---- UDP (udp_bindings.cpp)
  /// After flows of the port have joined or left the group.
  Carried<void> renew_group(const IpAddr& group, uint16_t port, const UdpFlow* without = nullptr);
  /// After a change of what a flow hears, of its interfaces, or of those who share its port.
  void renew(const UdpFlow& u);
  void renew_all(uint16_t port);
  /// A device has gone, and its rules with it.
  void drop_rules_of(const Device& gone);

 private:
  struct Found {  ///< result of find(), 0: nothing; valid until a key is bound or unbound
    Demux::Ref ref = 0;
    IpAddr local;
    uint16_t port = 0;
    IpProto proto{};
  };

  void forget() noexcept;
  Carried<void> join_group(const DemuxKey& key, Listener& l);
  void leave_group(const DemuxKey& key, Listener& l) noexcept;
  // udp_bindings.cpp
  Carried<void> bind_key(const DemuxKey& key, UdpFlow& u);
  void unbind_key(const DemuxKey& key, UdpFlow& u) noexcept;
  Carried<void> bind_udp(UdpFlow& u);
  void unbind_udp(UdpFlow& u) noexcept;
  std::vector<IpAddr> groups_at(uint16_t port) const;
  void end(UdpBinding& b) noexcept;
  Carried<void> settle(UdpBinding& b);
  void show(const UdpFlow& u) noexcept;

  Hub& hub() const noexcept;
  Found last_;
  std::vector<UdpBinding*> groups_;  ///< the bindings of multicast groups
};

}  // namespace vireo
