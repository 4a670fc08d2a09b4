// What an engine is made with, and what it tells of itself.
// Owner: who makes the engine. Thread: any.
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
struct Listener;
struct TcpFlow;
struct UdpFlow;

/// Up-calls to the socket layer, made with the lock held, at most one per flow and burst. They may
/// read the flow and wake threads; they must not call back into the engine.
struct EngineEvents {
  void (*tcp)(TcpFlow&, tcp::Effects) = nullptr;  ///< owner is set
  void (*accept)(Listener&) = nullptr;            ///< `ready` grew
  void (*udp)(UdpFlow&) = nullptr;                ///< `queue` grew or soft_error was set
};

struct EngineConfig {
  size_t arena_bytes = size_t{32} << 20;
  bool huge_pages = true;
  uint32_t frame_bytes = 2048;
  Duration time_wait = Duration::s(60);
  Duration helper_grace = Duration::ms(1);
  bool autocork = true;               ///< back_to_back.cpp
  uint32_t max_orphans = 65'536;      ///< net.ipv4.tcp_max_orphans, TIME-WAIT not counted
  uint32_t port_leases = 0;           ///< most local ports kept for the next connection
  std::span<PortStats> port_stats{};  ///< where open interfaces are told; what has no room is not
  LastWill* will = nullptr;           ///< null: nobody reads it
  uint32_t engines = 1;               ///< that share the will, at most: this one has every so
                                      ///< manieth entry, from that of its EngineId on
  Instant (*clock)() = Clock::now;    ///< of what is not asked by its caller's `now`
  tcp::IsnSecret secret{};            ///< zero: drawn at random, as all but a simulation wants it
};

/// What an engine holds, by count: all zero but `demux_keys` of UDP when every TCP socket is closed
/// and over.
struct Census {
  uint32_t connections = 0;  ///< accepted or not, closed by the program or not
  uint32_t orphans = 0;      ///< of them, those that the program has closed
  uint32_t waiting = 0;      ///< of them, those with something to send, to tell or to ask
  uint32_t half_open = 0;    ///< records of SYNs
  uint32_t time_waits = 0;
  uint32_t listeners = 0;
  uint32_t demux_keys = 0;
  bool operator==(const Census&) const = default;
};

}  // namespace vireo
