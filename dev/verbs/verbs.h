// The verbs back end: an Ethernet port of any RDMA device whose libibverbs provider has raw-packet
// queue pairs (mlx4, mlx5, a software device), as a Device. What the device reports is used, what
// it refuses is done without. libibverbs is loaded by the first open and not before.
// Owner: the caller of open_verbs. Thread: open_queue, steer and the end of a rule may come from
// any thread (one lock inside, never held on the data path); a Queue belongs to the holder of its
// engine's lock. Source: the manual pages of rdma-core, ibv_create_qp(3) and on.
//
// After fork() the child may end its copies of Queue and Device: nothing is done to the parent's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "core/arena.h"
#include "core/result.h"
#include "core/types.h"
#include "dev/device.h"

namespace vireo {

/// Which port: that of the network interface, or (for tests) the first one of a device by name.
struct VerbsTarget {
  IfIndex ifindex{};
  std::string_view interface{};
  std::string_view device{};  ///< if not empty, this one
  uint32_t mtu = 1500;        ///< of the interface: verbs do not know it
  /// If given, rules for unicast flows ask for this destination, which some devices insist on.
  std::optional<std::array<uint8_t, 6>> mac = {};
  /// Opening fails where a queue or a rule would be refused later, so that there is a choice yet.
  bool prove = false;
  std::string_view sysfs = "/sys";  ///< where bonds are looked up; tests have their own
};

/// What a received frame's time is (PacketBuf::hw_time), where completions bear a count.
enum class StampTime : uint8_t {
  kNone,    ///< frames have none
  kRaw,     ///< the count in nanoseconds
  kBest,    ///< kSystem, else kRaw
  kSystem,  ///< CLOCK_REALTIME, with which the counter is compared now and then
  kPtp,     ///< the device's own clock, which PTP may set; else kSystem
};

struct VerbsOptions {
  uint32_t rx_frames = 2048;    ///< receives posted at once, at most
  uint32_t tx_frames = 2048;    ///< frames in flight, at most
  uint32_t inline_bytes = 204;  ///< wished for: frames up to here are copied into the work request
  uint32_t signal_every = 64;   ///< sends per completion, at most
  uint32_t refill_receives = 64;  ///< posted by one call, at most
  StampTime stamps = StampTime::kSystem;
  bool stride = false;    ///< one request for many frames, where the device can and we drive its
                          ///< rings (dev/mlx5)
  bool lro = false;       ///< segments of a connection in one packet, where the device strides and
                          ///< takes commands (dev/mlx5)
  bool compress = false;  ///< completions of receives, where the device can and we read them
                          ///< (dev/mlx5): fewer bytes on the bus, for bursts
};

/// Packets live in `arena`, which must outlive the device; it is registered as one region.
/// Errors: ENOENT no libibverbs; ENODEV no RDMA port belongs to the interface; EPERM (where names
/// the capability); ENOMEM (where names the limit); ENOTSUP no raw-packet queue pairs; EIO the
/// device is gone. open_queue() adds: EINVAL a pool outside the arena, EBUSY.
Result<std::unique_ptr<Device>> open_verbs(const VerbsTarget& target, Arena& arena,
                                           const VerbsOptions& options = {});

}  // namespace vireo
