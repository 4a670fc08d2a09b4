// The open TCP connections of a process, in shared memory that outlives it, for vireo-mourner
// (tools/vireo-mourner). The kernel does not know these connections, so it cannot reset them when
// the process is killed.
// Owner: the process, a memfd. Thread: entries by the holder of the engine's lock; the mourner
// reads when the process is gone, or has been replaced by exec(3).
#pragma once

#include <atomic>
#include <cstdint>

namespace vireo {

inline constexpr uint64_t kLastWillMagic = 0x314c4c49'57455256;  // "VREWILL1"
inline constexpr const char* kLastWillMemfdName = "vireo-last-will";
inline constexpr uint32_t kLastWillEntries = 1U << 20;  ///< an engine's limit of connections
inline constexpr uint32_t kLastWillPorts = 16;

/// A connection that may be open at its peer.
struct LastWillEntry {
  std::atomic<uint32_t> open{0};  ///< written last: the rest is valid while it is 1
  uint32_t iss = 0;               ///< initial send sequence number (RFC 9293 §3.4.1)
  uint32_t ts_offset = 0;         ///< offset of our timestamp clock, milliseconds
  uint32_t scope = 0;             ///< interface of a link-local peer, else 0
  uint8_t local_addr[16] = {};    ///< IpAddr bytes
  uint8_t remote_addr[16] = {};
  uint16_t local_port = 0;
  uint16_t remote_port = 0;
  uint8_t timestamps = 0;  ///< we offered them (RFC 7323)
  uint8_t pad[3] = {};
};

struct LastWill {
  uint64_t magic = kLastWillMagic;
  std::atomic<uint32_t> used{0};                ///< entries from this index were never written
  std::atomic<uint32_t> ports[kLastWillPorts];  ///< indices of the interfaces in use, 0: none
  LastWillEntry entries[kLastWillEntries];
};

}  // namespace vireo
