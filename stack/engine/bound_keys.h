// Demux keys of flows bound without a peer: one local address or all of them, one address family or
// both, and multicast groups. Several UDP flows, or several listeners, may share a key; a list
// behind the key holds them.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include "core/carriage.h"
#include "stack/engine/flow.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;

class BoundKeys : Part {
 public:
  /// What is bound to `local` and `port`, or to the wildcard address and `port`; 0: nothing.
  Demux::Ref find(IpProto proto, const IpAddr& local, uint16_t port) noexcept;
  /// Binds all keys of a flow. Errors: EADDRINUSE.
  Carried<void> bind(Flow& f);
  void unbind(Flow& f) noexcept;
  /// Binds one key. If the UDP flow has the key already, only the data derived from its groups is
  /// updated.
  Carried<void> bind_key(const DemuxKey& key, Flow& f);
  void unbind_key(const DemuxKey& key, Flow& f) noexcept;

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

  Hub& hub() const noexcept;
  Found last_;
};

}  // namespace vireo
