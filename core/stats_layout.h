// Counters in shared memory, for tools to read from a live process. A memfd named "vireo-stats" in
// the process's fd table, found through /proc/PID/fd, so that a killed process leaves nothing
// behind. Owner: the process; each slot is written by the holder of its engine's lock. Thread:
// readers in other processes see plain 64-bit stores; a slot's texts are consistent if `generation`
// is even, non-zero and unchanged across the read (stats_reading.h checks it). The memfd is sealed
// against shrinking: a reader may map it without fear of SIGBUS.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/carriage.h"

namespace vireo {

inline constexpr uint64_t kStatsMagic = 0x31535441'4f455256;  // "VREOATS1"
inline constexpr uint32_t kStatsVersion = 15;
inline constexpr uint32_t kStatsSockets =
    1024;  // slots; sockets beyond them are counted in the engine only
inline constexpr uint32_t kStatsEngines = 32;
inline constexpr uint32_t kStatsPorts = 16;
inline constexpr const char* kStatsMemfdName = "vireo-stats";

/// A monotone counter: one writer, any reader.
class Counter {
 public:
  void add(uint64_t n = 1) {
#if defined(__SANITIZE_THREAD__)
    v_.store(v_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
#else
    // The same in one instruction: compilers use three for atomics.
    asm("addq %1, %0" : "+m"(v_) : "er"(n) : "cc");
#endif
  }
  void set(uint64_t n) { v_.store(n, std::memory_order_relaxed); }
  uint64_t get() const { return v_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> v_{0};
};

/// Counters of a socket.
struct SocketCounters {
  Counter rx_packets, rx_bytes, tx_packets, tx_bytes;  ///< packets and payload bytes carried
  Counter rx_drops, retransmits, errors;
  Counter os_rx_packets, os_rx_bytes, os_tx_packets,
      os_tx_bytes;  ///< calls served by the kernel's socket
};

/// Whether other sockets of the host get datagrams of a carried UDP socket, too.
enum class SharedPort : uint8_t {
  kNo,
  kKernel,  ///< the kernel delivers to all
  kCopies,  ///< each process gets copies by its device
  kBoth,    ///< copies of groups; what is for one of them alone the kernel delivers
};

struct SocketStats : SocketCounters {
  std::atomic<uint32_t> generation{0};  ///< 0 never used; odd while the descriptive fields change
  int32_t fd = -1;                      ///< a descriptor of the socket, -1 after close
  uint8_t proto = 0;                    ///< IPPROTO_TCP, IPPROTO_UDP
  uint8_t family = 0;                   ///< AF_INET, AF_INET6
  uint8_t listening = 0;
  uint8_t tcp_state = 0;  ///< tcp::State
  Carriage carriage = Carriage::kUndecided;
  uint8_t closed = 0;  ///< the program closed it; the slot may be taken again
  uint8_t ring = 0;    ///< if carried: index of its engine in StatsLayout::engines
  std::atomic<SharedPort> shared{SharedPort::kNo};  ///< carried UDP
  uint8_t local_addr[16] = {};                      ///< IpAddr bytes
  uint8_t remote_addr[16] = {};
  uint16_t local_port = 0;
  uint16_t remote_port = 0;
  int32_t err = 0;       ///< errno of the carriage decision, 0 = none
  char detail[64] = {};  ///< the step that refused, NUL-terminated
};

/// Sums over closed sockets, by their last decision.
struct ClosedStats : SocketCounters {
  Counter sockets;
};

/// Polls of an engine, and the packets received and sent.
struct PacketStats {
  Counter polls, empty_polls, rx_packets, rx_bytes, tx_packets, tx_bytes;
  Counter rx_unknown_flow, rx_bad_checksum, rx_malformed, tx_ring_full, pool_empty;
  Counter helper_polls, sleeps;
};

/// Flows of an engine, and their transmissions.
struct FlowStats {
  Counter active_opens;  ///< connections opened by the program (RFC 4022, tcpActiveOpens)
  Counter accepted, udp_flows, time_waits;
  Counter corks;             ///< times that small writes were held to be joined
  Counter shared_doorbells;  ///< frames sent by the doorbell of a later one
  Counter leased_ports;      ///< connections with the local port of an earlier one
  Counter pool_free, pool_size, resets_sent, retransmits;
};

struct EngineStats : PacketStats, FlowStats {
  // As counted by the devices (dev/device.h, QueueLosses), read once a second.
  Counter rx_lost_ring_full, rx_lost_no_frame, rx_starved, rx_refused, tx_refused, queue_restarts;
  Counter listen_overflows, syn_cookies_sent, syn_cookies_received, syn_cookies_failed;
  // Packets reassembled, and reassemblies that failed (RFC 4293, ipReasmOKs).
  Counter reassembled, reassembly_fails;
  // RFC 7413, as a server: connections opened by their SYN; of these, by a cookie of the backup
  // key; and cookies of no key of ours.
  Counter fast_opens, fast_opens_old_key, fast_opens_refused;
  Counter ports_shared;      ///< times that a UDP port's datagrams became the kernel's to deliver
  Counter given_to_kernel;   ///< frames that came for a socket which had become the kernel's
  Counter unaccepted_given;  ///< connections, not accepted, that the kernel's listener got
};

/// An interface in use. Written once, `ifindex` last (release).
struct PortStats {
  std::atomic<uint32_t> ifindex{0};  ///< 0: no port
  uint32_t queues = 0;
  char name[16] = {};
  char mode[24] = {};
};

/// The processes that share our interfaces, and frames of their packet memory, twice a second.
struct GroupStats {
  Counter members;  ///< that live, or died and left something; 0: none could
  Counter slot;     ///< ours among them
  Counter frames;   ///< of all
  Counter own;      ///< ours
  Counter queued;   ///< posted for receiving, or received and not taken yet
  Counter unused;   ///< nobody's: for processes that join
  Counter left;     ///< of dead members, while the kernel may still send them
};

struct StatsLayout {
  uint64_t magic = kStatsMagic;
  uint32_t version = kStatsVersion;
  uint32_t bytes = 0;
  int32_t pid = 0;
  uint32_t socket_slots = kStatsSockets;
  char program[32] = {};
  EngineStats engines[kStatsEngines];
  PortStats ports[kStatsPorts];
  GroupStats group;
  Counter sockets_carried, sockets_kernel;                 ///< decisions since start
  Counter refused[static_cast<size_t>(Carriage::kCount)];  ///< decisions by reason
  ClosedStats closed[static_cast<size_t>(Carriage::kCount)];
  SocketStats sockets[kStatsSockets];
};

}  // namespace vireo
