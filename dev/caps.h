// What a device can do; asked of the device, never assumed.
// Owner: the Device. Thread: any (constant after open).
#pragma once

#include <cstdint>

#include "core/types.h"

namespace vireo {

enum class DeviceKind : uint8_t { kMem, kShm, kXdp, kVerbs, kMlx5 };

enum class Checksum : uint8_t {
  kSoftware,   ///< we compute (TX) or verify (RX)
  kOffload,    ///< the device fills in (TX) or reports by RxFlags (RX)
  kNotNeeded,  ///< the wire cannot corrupt: TX leaves any value, RX reports good
};

struct DeviceCaps {
  DeviceKind kind = DeviceKind::kMem;
  const char* mode = "";  ///< for people: "native zero-copy", "native copy", "generic", ...
  uint32_t queues = 1;    ///< RX/TX queue pairs
  uint32_t mtu = 1500;    ///< largest IP packet
  Checksum tx_l4 = Checksum::kSoftware;  ///< TCP and UDP
  Checksum rx_l4 = Checksum::kSoftware;
  Checksum tx_ip = Checksum::kSoftware;  ///< IPv4 header
  Checksum rx_ip = Checksum::kSoftware;
  uint32_t tso_max_bytes = 0;  ///< largest TCP payload of one TxFrame with mss set; 0 = no TSO
  uint16_t max_body_slices =
      1;  ///< slices a TxFrame may have without a copy; more are gathered by the device
  uint16_t inline_bytes = 0;      ///< frames up to here are copied into the ring itself
  bool tags = false;              ///< RxDesc may carry the FlowTag of the rule that matched
  bool vlan_rules = false;        ///< steer() asks for the VLAN of a key, where it is granted
  bool link_rules = false;        ///< steer() tells a VLAN's frames from others', also kUntagged,
                                  ///< and set_host() says what a wildcard may take
  bool asks_kernel = false;       ///< ask_kernel() is heeded
  bool stamps = false;            ///< Queue::stamp() makes RX frames bear their time
  bool multi_frame = false;       ///< an RX packet may span frames (RxFlags::kMore)
  bool doorbell_is_call = false;  ///< ringing is a system call: dear
  bool reopens = false;  ///< the interface may be opened again beside this one, also by this
                         ///< process: each opening has queues and rules of its own
  /// VLAN tags come beside the frames, which look as if they had none. For people: the remedy.
  const char* hides_tags = nullptr;
};

}  // namespace vireo
