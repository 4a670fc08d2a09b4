// What an engine is created with, and the counts it reports.
// Owner: the creator of the engine. Thread: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/clock.h"
#include "core/stats_layout.h"
#include "stack/tcp/isn.h"
#include "stack/tcp/tcp.h"

namespace vireo {

struct LastWill;
struct LeftFrame;  // stack/engine/left_frame.h
struct Listener;
struct TcpFlow;
struct UdpFlow;

/// Callbacks into the socket layer, called with the lock held, at most once per flow and burst.
/// They may read the flow and wake threads; they must not call the engine.
struct EngineEvents {
  void (*tcp)(TcpFlow&, tcp::Effects) = nullptr;  ///< owner is set
  void (*accept)(Listener&) = nullptr;            ///< `ready` grew
  void (*udp)(UdpFlow&) = nullptr;                ///< `queue` grew or soft_error was set
  // ---- of watched flows; not limited to once
  void (*tcp_left)(TcpFlow&, const LeftFrame&) = nullptr;
  void (*tcp_acked)(TcpFlow&) = nullptr;  ///< a segment came: perhaps it acknowledged data
  void (*udp_left)(UdpFlow&, const LeftFrame&) = nullptr;  ///< within the call that sends it
};

struct EngineConfig {
  size_t arena_bytes = size_t{32} << 20;
  bool huge_pages = true;
  uint32_t frame_bytes = 2048;
  Duration time_wait = Duration::s(60);
  Duration helper_grace = Duration::ms(1);
  bool autocork = true;               ///< back_to_back.cpp
  uint32_t max_orphans = 65'536;      ///< net.ipv4.tcp_max_orphans, TIME-WAIT not counted
  uint32_t port_leases = 0;           ///< most local ports kept for later connections
  std::span<PortStats> port_stats{};  ///< of open interfaces; those without a row are not shown
  LastWill* will = nullptr;           ///< null: no last will
  uint32_t engines = 1;  ///< that share the will, at most: this one has every `engines`-th entry,
                         ///< from that of its EngineId on
  Instant (*clock)() = Clock::now;  ///< used where the caller passes no `now`
  tcp::IsnSecret secret{};          ///< zero: drawn at random; only a simulation sets it
};

/// Counts of what an engine holds: all zero, except the UDP part of `demux_keys`, when every TCP
/// socket is closed and its protocol work done.
struct Census {
  uint32_t connections = 0;  ///< accepted or not, closed by the program or not
  uint32_t orphans = 0;      ///< of them, closed by the program
  uint32_t waiting = 0;  ///< of them, with data to send, events to deliver, or an unknown neighbour
  uint32_t half_open = 0;  ///< SYN records
  uint32_t time_waits = 0;
  uint32_t listeners = 0;
  uint32_t demux_keys = 0;
  bool operator==(const Census&) const = default;
};

}  // namespace vireo
