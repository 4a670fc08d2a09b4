// Keys of flows that are bound without a peer: a local address or every address, one family or
// both, and groups. Several UDP flows, or listeners, may share a key and stand in a list behind it.
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
  /// What is bound to `local` and `port`, or to every address and it; 0: nothing.
  Demux::Ref find(IpProto proto, const IpAddr& local, uint16_t port) noexcept;
  /// All keys of a flow. Errors: EADDRINUSE.
  Carried<void> bind(Flow& f);
  void unbind(Flow& f) noexcept;
  /// One of them. Of a UDP flow that has it already, what follows from its groups is asked anew.
  Carried<void> bind_key(const DemuxKey& key, Flow& f);
  void unbind_key(const DemuxKey& key, Flow& f) noexcept;

 private:
  struct Found {  ///< by find(), 0: nothing; holds until a key is bound or unbound
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
