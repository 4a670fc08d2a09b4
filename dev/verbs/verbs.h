// The verbs back end: an Ethernet port of any RDMA device whose libibverbs provider supports
// raw-packet QPs (mlx4, mlx5, a software device), as a Device. It uses the features that the device
// reports and works without those it refuses. libibverbs is loaded by the first open, not before.
// Owner: the caller of open_verbs. Thread: open_queue, steer and the removal of a rule may come
// from any thread (one internal lock, never held on the data path); a Queue belongs to the holder
// of its engine's lock. Source: the manual pages of rdma-core, ibv_create_qp(3) and on.
//
// After fork() the child may destroy its copies of Queue and Device without effect on the parent's.
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

/// Selects the port: that of the network interface, or (for tests) the first port of a named
/// device.
struct VerbsTarget {
  IfIndex ifindex{};
  std::string_view interface{};
  std::string_view device{};  ///< if not empty, this device
  uint32_t mtu = 1500;        ///< of the interface; verbs do not report it
  /// If given, unicast rules match this destination MAC, which some devices require.
  std::optional<std::array<uint8_t, 6>> mac = {};
  /// Make the open fail if a QP or a rule would be refused later, so that another device can be
  /// chosen.
  bool prove = false;
  std::string_view sysfs = "/sys";  ///< where bonds are looked up; tests use their own
};

/// The meaning of a received frame's time (PacketBuf::hw_time), if completions carry timestamps.
enum class StampTime : uint8_t {
  kNone,    ///< frames have none
  kRaw,     ///< the counter, in nanoseconds
  kBest,    ///< kSystem, else kRaw
  kSystem,  ///< CLOCK_REALTIME, with which the counter is compared regularly
  kPtp,     ///< the device's own clock, which PTP may set; else kSystem
};

struct VerbsOptions {
  uint32_t rx_frames = 2048;      ///< most receives posted at once
  uint32_t tx_frames = 2048;      ///< most frames in flight
  uint32_t inline_bytes = 204;    ///< requested; frames up to this size are copied into the WQE
  uint32_t signal_every = 64;     ///< most sends per completion
  uint32_t refill_receives = 64;  ///< most receives posted by one call
  StampTime stamps = StampTime::kSystem;
  bool stride = false;  ///< one receive request for many frames, if the device can (dev/mlx5 only)
  bool lro = false;     ///< LRO, if the device can stride and accepts commands (dev/mlx5 only)
  bool compress = false;  ///< compressed receive CQEs, if the device can (dev/mlx5 only): fewer
                          ///< bytes on the bus in bursts
};

/// Packets live in `arena`, which must outlive the device; it is registered as one memory region.
/// Errors: ENOENT no libibverbs; ENODEV the interface has no RDMA port; EPERM (where names the
/// capability); ENOMEM (where names the limit); ENOTSUP no raw-packet QPs; EIO the device is gone.
/// open_queue() adds: EINVAL a pool outside the arena, EBUSY.
Result<std::unique_ptr<Device>> open_verbs(const VerbsTarget& target, Arena& arena,
                                           const VerbsOptions& options = {});

}  // namespace vireo
