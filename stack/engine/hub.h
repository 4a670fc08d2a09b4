// The engine's parts, held by value: each has its own fields, and reaches the others through hub().
//
//   wakeups            deadline of the next work, threads that sleep until then
//   turn               what one poll does
//   receive            frames in           deferred     ... work of receiving done later
//   replies            answers that belong to no connection
//   tcp, udp           the flows           notifications, timers
//   output             TCP segments out    doorbells    when the device is told of them
//   passive            listeners, half-open connections
//   time_waits         connections in TIME-WAIT
//   ports              interfaces in use   steering     which frames they bring
//   host               which frames are for this host
//   next_hops          routes, neighbours, path MTU
//   keys, demux        the flow of a frame
//   pressure           when buffers run short
//   will               the connections to reset if the process is killed
//
// Owner: Engine. Guard: the engine's lock, except where a part states otherwise.
#pragma once

#include <boost/intrusive/parent_from_member.hpp>

#include "core/arena.h"
#include "core/packet.h"
#include "core/stats_layout.h"
#include "stack/engine/bound_keys.h"
#include "stack/engine/doorbell_policy.h"
#include "stack/engine/engine_config.h"
#include "stack/engine/fast_path/deferred_receive.h"
#include "stack/engine/flow.h"
#include "stack/engine/next_hops.h"
#include "stack/engine/notifications.h"
#include "stack/engine/own_host.h"
#include "stack/engine/passive_open.h"
#include "stack/engine/pool_pressure.h"
#include "stack/engine/ports.h"
#include "stack/engine/receive.h"
#include "stack/engine/replies.h"
#include "stack/engine/steering.h"
#include "stack/engine/tcp_flows.h"
#include "stack/engine/tcp_output.h"
#include "stack/engine/tcp_timers.h"
#include "stack/engine/time_waits.h"
#include "stack/engine/turn.h"
#include "stack/engine/udp_flows.h"
#include "stack/engine/wakeups.h"
#include "stack/engine/will_writer.h"
#include "stack/net/snapshot.h"

namespace vireo {

struct Hub {
  Hub(EngineId id, const EngineConfig& config, DeviceOpener opener, net::Mirror& mirror,
      const EngineEvents& events, EngineStats& stats, Arena arena);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  /// The egress was resolved from the current snapshot.
  bool is_current(const CachedRoute& e) const noexcept {
    return e.generation == static_cast<uint32_t>(reader.generation());
  }

  // ---- used by all parts
  EngineId id;
  EngineConfig config;
  EngineEvents events;
  EngineStats& stats;
  SocketStats unowned_stats;  ///< of flows without a socket
  tcp::IsnSecret secret;
  Arena arena;
  net::SnapshotStore::Reader reader;
  PacketPool pool;

  // ---- the parts
  Turn turn;
  DeferredReceive deferred;
  Ports ports;
  Receive receive;
  DoorbellPolicy doorbells;
  PoolPressure pressure;
  Notifications notifications;
  TcpOutput output;
  TcpTimers timers;
  Wakeups wakeups;
  Demux demux;
  BoundKeys keys;
  TcpFlows tcp;
  UdpFlows udp;
  TimeWaits time_waits;
  PassiveOpen passive;
  Replies replies;
  NextHops next_hops;
  OwnHost host;
  Steering steering;
  WillWriter will;
};

/// The hub that contains `part`, by its offset: a pointer in each part would cost a load per call.
template <class T>
Hub& hub_around(const T* part, T Hub::* place) noexcept {
  return *bi::get_parent_from_member(const_cast<T*>(part), place);
}
inline Hub& Turn::hub() const noexcept { return hub_around(this, &Hub::turn); }
inline Hub& DeferredReceive::hub() const noexcept { return hub_around(this, &Hub::deferred); }
inline Hub& Ports::hub() const noexcept { return hub_around(this, &Hub::ports); }
inline Hub& Receive::hub() const noexcept { return hub_around(this, &Hub::receive); }
inline Hub& DoorbellPolicy::hub() const noexcept { return hub_around(this, &Hub::doorbells); }
inline Hub& PoolPressure::hub() const noexcept { return hub_around(this, &Hub::pressure); }
inline Hub& Notifications::hub() const noexcept { return hub_around(this, &Hub::notifications); }
inline Hub& TcpOutput::hub() const noexcept { return hub_around(this, &Hub::output); }
inline Hub& TcpTimers::hub() const noexcept { return hub_around(this, &Hub::timers); }
inline Hub& BoundKeys::hub() const noexcept { return hub_around(this, &Hub::keys); }
inline Hub& TcpFlows::hub() const noexcept { return hub_around(this, &Hub::tcp); }
inline Hub& UdpFlows::hub() const noexcept { return hub_around(this, &Hub::udp); }
inline Hub& TimeWaits::hub() const noexcept { return hub_around(this, &Hub::time_waits); }
inline Hub& PassiveOpen::hub() const noexcept { return hub_around(this, &Hub::passive); }
inline Hub& Replies::hub() const noexcept { return hub_around(this, &Hub::replies); }
inline Hub& NextHops::hub() const noexcept { return hub_around(this, &Hub::next_hops); }
inline Hub& OwnHost::hub() const noexcept { return hub_around(this, &Hub::host); }
inline Hub& Steering::hub() const noexcept { return hub_around(this, &Hub::steering); }

// ---- short functions of the parts that need other parts

inline bool PoolPressure::is_low() const noexcept { return hub().pool.free_count() < low_water_; }
inline bool PoolPressure::is_at_ease() const noexcept {
  return hub().pool.free_count() > relieve_below_;
}

inline void TcpOutput::count_sent(TcpFlow& f, uint64_t segments, size_t header,
                                  uint32_t payload) noexcept {
  hub().stats.tx_packets.add(segments);
  hub().stats.tx_bytes.add(segments * header + payload);
  f.stats->tx_packets.add(segments);
  f.stats->tx_bytes.add(payload);
}

inline bool TcpFlows::has_sent_much() const noexcept {
  return hub().stats.tx_bytes.get() - sent_at_poll_ >= kSentPerPoll;
}

inline void UdpFlows::count_sent(UdpFlow& u, size_t head, size_t payload) noexcept {
  hub().stats.tx_packets.add();
  hub().stats.tx_bytes.add(head + payload);
  u.stats->tx_packets.add();
  u.stats->tx_bytes.add(payload);
}

/// As Linux: an empty queue takes any one datagram. When the pool runs low, queues do not grow.
inline bool UdpFlows::has_room(const UdpFlow& u, uint32_t cost) const noexcept {
  const bool is_full = u.queue_truesize + cost > u.rcv_buf || hub().pressure.is_low();
  return !is_full || u.queue.empty();
}

}  // namespace vireo
