// A consistent copy of a process's counters (stats_layout.h), safe to print: texts are read under
// their generation and end within their arrays, and table indices are in range, whatever the other
// process wrote. The lists below name the counters for tables and JSON.
// Owner: the reader. Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/address.h"
#include "core/carriage.h"
#include "core/stats_layout.h"

namespace vireo {

template <class S>
struct CounterName {
  std::string_view name;
  Counter S::* counter;
};

inline constexpr std::array kSocketCounters{
    CounterName<SocketCounters>{"rx_packets", &SocketCounters::rx_packets},
    CounterName<SocketCounters>{"rx_bytes", &SocketCounters::rx_bytes},
    CounterName<SocketCounters>{"tx_packets", &SocketCounters::tx_packets},
    CounterName<SocketCounters>{"tx_bytes", &SocketCounters::tx_bytes},
    CounterName<SocketCounters>{"rx_drops", &SocketCounters::rx_drops},
    CounterName<SocketCounters>{"retransmits", &SocketCounters::retransmits},
    CounterName<SocketCounters>{"errors", &SocketCounters::errors},
    CounterName<SocketCounters>{"os_rx_packets", &SocketCounters::os_rx_packets},
    CounterName<SocketCounters>{"os_rx_bytes", &SocketCounters::os_rx_bytes},
    CounterName<SocketCounters>{"os_tx_packets", &SocketCounters::os_tx_packets},
    CounterName<SocketCounters>{"os_tx_bytes", &SocketCounters::os_tx_bytes},
};

inline constexpr std::array kEngineCounters{
    CounterName<EngineStats>{"rx_packets", &EngineStats::rx_packets},
    CounterName<EngineStats>{"rx_bytes", &EngineStats::rx_bytes},
    CounterName<EngineStats>{"tx_packets", &EngineStats::tx_packets},
    CounterName<EngineStats>{"tx_bytes", &EngineStats::tx_bytes},
    CounterName<EngineStats>{"rx_unknown_flow", &EngineStats::rx_unknown_flow},
    CounterName<EngineStats>{"rx_bad_checksum", &EngineStats::rx_bad_checksum},
    CounterName<EngineStats>{"rx_malformed", &EngineStats::rx_malformed},
    CounterName<EngineStats>{"tx_ring_full", &EngineStats::tx_ring_full},
    CounterName<EngineStats>{"pool_empty", &EngineStats::pool_empty},
    CounterName<EngineStats>{"rx_lost_ring_full", &EngineStats::rx_lost_ring_full},
    CounterName<EngineStats>{"rx_lost_no_frame", &EngineStats::rx_lost_no_frame},
    CounterName<EngineStats>{"rx_starved", &EngineStats::rx_starved},
    CounterName<EngineStats>{"rx_refused", &EngineStats::rx_refused},
    CounterName<EngineStats>{"tx_refused", &EngineStats::tx_refused},
    CounterName<EngineStats>{"queue_restarts", &EngineStats::queue_restarts},
    CounterName<EngineStats>{"pool_free", &EngineStats::pool_free},
    CounterName<EngineStats>{"pool_size", &EngineStats::pool_size},
    CounterName<EngineStats>{"polls", &EngineStats::polls},
    CounterName<EngineStats>{"empty_polls", &EngineStats::empty_polls},
    CounterName<EngineStats>{"helper_polls", &EngineStats::helper_polls},
    CounterName<EngineStats>{"sleeps", &EngineStats::sleeps},
    CounterName<EngineStats>{"active_opens", &EngineStats::active_opens},
    CounterName<EngineStats>{"accepted", &EngineStats::accepted},
    CounterName<EngineStats>{"udp_flows", &EngineStats::udp_flows},
    CounterName<EngineStats>{"time_waits", &EngineStats::time_waits},
    CounterName<EngineStats>{"corks", &EngineStats::corks},
    CounterName<EngineStats>{"shared_doorbells", &EngineStats::shared_doorbells},
    CounterName<EngineStats>{"leased_ports", &EngineStats::leased_ports},
    CounterName<EngineStats>{"resets_sent", &EngineStats::resets_sent},
    CounterName<EngineStats>{"retransmits", &EngineStats::retransmits},
    CounterName<EngineStats>{"listen_overflows", &EngineStats::listen_overflows},
    CounterName<EngineStats>{"syn_cookies_sent", &EngineStats::syn_cookies_sent},
    CounterName<EngineStats>{"syn_cookies_received", &EngineStats::syn_cookies_received},
    CounterName<EngineStats>{"syn_cookies_failed", &EngineStats::syn_cookies_failed},
    CounterName<EngineStats>{"reassembled", &EngineStats::reassembled},
    CounterName<EngineStats>{"reassembly_fails", &EngineStats::reassembly_fails},
    CounterName<EngineStats>{"fast_opens", &EngineStats::fast_opens},
    CounterName<EngineStats>{"fast_opens_old_key", &EngineStats::fast_opens_old_key},
    CounterName<EngineStats>{"fast_opens_refused", &EngineStats::fast_opens_refused},
    CounterName<EngineStats>{"ports_shared", &EngineStats::ports_shared},
    CounterName<EngineStats>{"given_to_kernel", &EngineStats::given_to_kernel},
    CounterName<EngineStats>{"unaccepted_given", &EngineStats::unaccepted_given},
};

inline constexpr std::array kGroupCounters{
    CounterName<GroupStats>{"members", &GroupStats::members},
    CounterName<GroupStats>{"slot", &GroupStats::slot},
    CounterName<GroupStats>{"frames", &GroupStats::frames},
    CounterName<GroupStats>{"own", &GroupStats::own},
    CounterName<GroupStats>{"queued", &GroupStats::queued},
    CounterName<GroupStats>{"unused", &GroupStats::unused},
    CounterName<GroupStats>{"left", &GroupStats::left},
};

/// Values in the order of the list.
using GroupCounts = std::array<uint64_t, kGroupCounters.size()>;
using SocketCounts = std::array<uint64_t, kSocketCounters.size()>;
using EngineCounts = std::array<uint64_t, kEngineCounters.size()>;

/// Index of a counter in the lists, for compile-time use.
template <class S, size_t N>
consteval size_t counter_index(const std::array<CounterName<S>, N>& list, std::string_view name) {
  for (size_t i = 0; i < N; ++i)
    if (list[i].name == name) return i;
  std::unreachable();  // a compile error: no such counter
}

struct SocketReading {
  int fd = -1;
  bool tcp = false;
  bool v6 = false;
  bool listening = false;
  bool closed = false;
  SharedPort shared = SharedPort::kNo;
  uint8_t tcp_state = 0;
  uint8_t ring = 0;  ///< if carried: index in ProcessReading::rings
  Carriage carriage = Carriage::kUndecided;
  int err = 0;
  std::string detail;
  Endpoint local;
  Endpoint remote;
  SocketCounts counts{};

  bool is_carried() const { return carriage == Carriage::kCarried; }
  /// "established", "listen", "shared-port:kernel", "shared-port:copies" ...; empty where there is
  /// none.
  std::string_view state() const;
};

struct PortReading {
  uint32_t ifindex = 0;
  uint32_t queues = 0;
  std::string name;
  std::string mode;
};

struct ClosedReading {
  uint64_t sockets = 0;
  SocketCounts counts{};
};

struct ProcessReading {
  int pid = 0;
  std::string program;
  EngineCounts engine{};            ///< sum of all rings
  std::vector<EngineCounts> rings;  ///< by engine
  std::vector<PortReading> ports;
  GroupCounts group{};
  uint64_t carried = 0;  ///< decisions since the start
  uint64_t kernel = 0;
  std::array<uint64_t, static_cast<size_t>(Carriage::kCount)> refused{};
  std::array<ClosedReading, static_cast<size_t>(Carriage::kCount)> closed{};
  std::vector<SocketReading> sockets;  ///< open ones, and closed ones whose slot is not reused yet
};

/// Copies `live`, which its process may be writing. A slot that keeps changing is omitted.
ProcessReading read_stats(const StatsLayout& live);

/// Name of a tcp::State (stack/tcp/tcp.h), as ss(8) writes it; "?" for other numbers.
std::string_view tcp_state_name(uint8_t state);

}  // namespace vireo
