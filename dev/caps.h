// What a device can do, as the device itself reports it.
// Owner: the Device. Thread: any (constant after open).
#pragma once

#include <cstdint>

#include "core/types.h"

namespace vireo {

enum class DeviceKind : uint8_t { kMem, kShm, kXdp, kVerbs, kMlx5 };

enum class Checksum : uint8_t {
  kSoftware,   ///< we compute it (TX) or verify it (RX)
  kOffload,    ///< the device fills it in (TX) or reports it in RxFlags (RX)
  kNotNeeded,  ///< the link cannot corrupt: any value may be sent, RX reports it good
};

struct DeviceCaps {
  DeviceKind kind = DeviceKind::kMem;
  const char* mode = "";  ///< for log and tools: "native zero-copy", "native copy", "generic", ...
  uint32_t queues = 1;    ///< RX/TX queue pairs
  uint32_t mtu = 1500;    ///< largest IP packet
  Checksum tx_l4 = Checksum::kSoftware;  ///< TCP and UDP
  Checksum rx_l4 = Checksum::kSoftware;
  Checksum tx_ip = Checksum::kSoftware;  ///< IPv4 header
  Checksum rx_ip = Checksum::kSoftware;
  uint32_t tso_max_bytes = 0;    ///< largest TCP payload of one TxFrame with mss set; 0 = no TSO
  uint16_t max_body_slices = 1;  ///< slices sent without a copy; the device gathers longer bodies
  uint16_t inline_bytes = 0;     ///< frames up to this size are copied into the ring itself
  bool tags = false;             ///< RxDesc may carry the FlowTag of the matching rule
  bool vlan_rules = false;       ///< steer() matches the key's VLAN, if the hardware grants it
  bool link_rules = false;  ///< steer() tells VLANs apart, also kUntagged; set_host() limits what a
                            ///< wildcard rule takes
  bool asks_kernel = false;       ///< ask_kernel() has an effect
  bool stamps = false;            ///< after Queue::stamp() RX frames carry their arrival time
  bool multi_frame = false;       ///< an RX packet may span frames (RxFlags::kMore)
  bool doorbell_is_call = false;  ///< the doorbell is a system call, thus expensive
  bool reopens = false;  ///< this or another process may open the interface again; each open has
                         ///< its own queues and rules
  /// Set if VLAN tags are stripped from the frames before we see them; the text names the remedy.
  const char* hides_tags = nullptr;
};

}  // namespace vireo
