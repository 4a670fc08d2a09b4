// The device contract: an engine receives and sends frames by queues, and asks by rules which flows
// come to them. Back ends: shm, xdp, verbs, mlx5. Owner: the engine that opened the queue. Thread:
// holder of that engine's lock, unless said otherwise. One virtual call per burst or per send;
// leaves are final.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/address.h"
#include "core/packet.h"
#include "core/prefetch.h"
#include "core/result.h"
#include "core/types.h"
#include "dev/caps.h"

namespace vireo {

enum class RxFlags : uint16_t {
  kNone = 0,
  kIpOk = 1,    ///< IPv4 header checksum verified
  kL4Ok = 2,    ///< TCP/UDP checksum verified, or not needed
  kHasTag = 4,  ///< `tag` is that of the rule which matched
  kMore = 8,    ///< the packet goes on in the next descriptor
};
template <>
inline constexpr bool kIsFlags<RxFlags> = true;

/// Above the flags: of how many segments of a connection the device has made the packet (LRO), if
/// of several. Its headers are those of the first, but for length, acknowledgement and window.
inline constexpr unsigned kRxSegmentsAt = 8;
constexpr RxFlags with_segments(RxFlags flags, uint32_t segments) {
  return flags | static_cast<RxFlags>(segments << kRxSegmentsAt);
}
/// At least 1.
constexpr uint32_t segments_of(RxFlags flags) {
  const uint32_t n = static_cast<uint32_t>(flags) >> kRxSegmentsAt;
  return n != 0 ? n : 1;
}
/// It is in one buffer, as it came from the wire.
constexpr bool is_single(RxFlags flags) {
  return static_cast<uint16_t>(flags) < static_cast<uint16_t>(RxFlags::kMore);
}

/// One received frame: starts at the Ethernet header (packet->data(), packet->length), or continues
/// the one before.
struct RxDesc {
  PacketRef packet;
  RxFlags flags = RxFlags::kNone;
  FlowTag tag{};
};

/// One frame to send: header bytes (copied before tx() returns), then the body.
/// The device may write `head` into the headroom right before a body that has one slice and no
/// device_refs; it may lie there already.
///
/// With `mss` it is a burst of TCP segments, which the device cuts: the body has at most
/// caps.tso_max_bytes and caps.max_body_slices, the head is that of the first segment (its lengths
/// those of the whole, its checksums anything). Each segment gets its own sequence number, lengths
/// and checksums, in IPv4 an identification one higher than the one before (RFC 6864 §4.2); PSH and
/// FIN only on the last (RFC 9293 §3.9.1), CWR only on the first (RFC 3168 §6.1.2), all else the
/// same. It is taken whole or not at all.
struct TxFrame {
  std::span<const std::byte> head;
  std::span<const PacketSlice> body;
  uint16_t mss = 0;  ///< > 0: payload of each segment but the last (needs caps.tso_max_bytes)
};

enum class Doorbell : uint8_t { kNow, kLater };  ///< kLater: more follows, tx_flush() will ring

/// What a queue lost since it was opened, by cause; zero where the device does not count it.
struct QueueLosses {
  uint64_t rx_ring_full = 0;  ///< frames: those before them had not been taken from the RX ring
  uint64_t rx_no_frame = 0;   ///< frames: no empty one was there to take them, or too long for one
  uint64_t rx_starved =
      0;  ///< times an empty frame was wanted in vain (a NIC then drops by itself)
  uint64_t rx_refused = 0;  ///< empty frames that the device refused: a fault of ours
  uint64_t tx_refused = 0;  ///< frames to send that the device refused: a fault of ours
  uint64_t restarts = 0;    ///< times the queue began anew after an error; what it held is lost
};

/// An interface of the host on the wire of a device: the device's own (VLAN 0), or a VLAN on it.
struct HostLink {
  VlanId vlan;
  std::array<uint8_t, 6> mac;
};

/// What of all that comes over the wire is the host's.
struct HostOnWire {
  std::span<const HostLink> links;
  std::span<const IpAddr> addresses;  ///< unicast, of both families
  bool fragments = false;  ///< those of packets for its flows are wanted, where a device knows them
};

/// How full a receive ring is.
struct RxLevel {
  uint32_t waiting = 0;  ///< frames that wait for rx_burst()
  uint32_t most = 0;     ///< as many may wait before frames are lost; 0: the device cannot say
};

class Device;

/// A steering rule; ends when the handle ends. An empty handle holds none.
class FlowRule {
 public:
  FlowRule() = default;
  FlowRule(Device* d, uint64_t id) : device_(d), id_(id) {}
  FlowRule(FlowRule&& o) noexcept : device_(std::exchange(o.device_, nullptr)), id_(o.id_) {}
  FlowRule& operator=(FlowRule&& o) noexcept {
    if (this != &o) {
      reset();
      device_ = std::exchange(o.device_, nullptr);
      id_ = o.id_;
    }
    return *this;
  }
  ~FlowRule() { reset(); }
  explicit operator bool() const { return device_ != nullptr; }
  const Device* device() const { return device_; }  ///< whose rule it is
  inline void reset();
  /// Forgets the rule without removing it (the child of a fork: the rule is the parent's).
  void abandon() { device_ = nullptr; }

 private:
  Device* device_ = nullptr;
  uint64_t id_ = 0;
};

/// One RX and one TX ring.
class Queue {
 public:
  virtual ~Queue() = default;
  /// Up to out.size() frames in arrival order; 0 costs one cache-line look.
  virtual unsigned rx_burst(std::span<RxDesc> out) noexcept = 0;
  virtual RxLevel rx_level() const noexcept { return {}; }
  /// From now on received frames bear PacketBuf::hw_time, where caps().stamps. A frame in several
  /// buffers has it in the first.
  virtual void stamp() noexcept {}
  /// Gives empty frames to the RX ring, as many as it and the pool have room for. Off the latency
  /// path.
  virtual void rx_refill() noexcept = 0;
  /// Queues one frame. @return false: ring or pool full, nothing was taken, try again after
  /// tx_reap().
  virtual bool tx(const TxFrame& frame, Doorbell bell) noexcept = 0;
  /// Rings for the frames queued with Doorbell::kLater.
  virtual void tx_flush() noexcept = 0;
  /// Drops the references of frames that have left. @return how many.
  virtual unsigned tx_reap() noexcept = 0;
  /// Asks that wait_fd() become readable at the next arrival; what it was readable of before has
  /// been seen, and ends no sleep. The wish stands whatever rx_burst() takes meanwhile. @return
  /// false: work is there already, do not sleep; who sleeps already is woken by the next arrival.
  /// Errors: ENODEV after the device is gone.
  virtual Result<bool> arm() noexcept = 0;
  /// For poll(2)/epoll(7): readable after arm() and an arrival. Constant. -1 where the device
  /// cannot sleep.
  virtual int wait_fd() const noexcept = 0;
  /// Clears the readiness of wait_fd() after a wake-up, where it does not clear itself.
  virtual void wake_ack() noexcept {}
  /// False once the device is gone (interface removed, reset): no frame will come or leave any
  /// more. A queue that failed alone begins anew.
  virtual bool alive() noexcept { return true; }
  /// May cost a system call.
  virtual QueueLosses losses() const noexcept { return {}; }

  /// Where the device would copy the head of the next frame to, with room for any head: one written
  /// there and given to the next tx() need not be copied. A copy reads in wide loads what was just
  /// written in small stores, and so waits until all that were before them have left the core.
  /// Null: nowhere, write it elsewhere. Valid until the next call of tx().
  std::byte* head_place() const noexcept { return head_place_; }
  /// A frame of so many bytes is about to be given to tx(). Where it would be copied behind its
  /// head, another core has read the frame that was there before: those lines come back before they
  /// are written to, but for the first, which that core may be looking at. Too early they would be
  /// taken away again, by its prefetcher, which runs ahead.
  void expect_frame(uint32_t bytes) const noexcept {
    if (head_place_ == nullptr) return;
    for (uint32_t at = kLine; at < bytes; at += kLine) prefetch_for_writing(head_place_ + at);
  }

 protected:
  static constexpr uint32_t kLine = 64;
  std::byte* head_place_ = nullptr;
};

/// An open network interface. Closing it removes all its rules and queues.
class Device {
 public:
  virtual ~Device() = default;
  const DeviceCaps& caps() const { return caps_; }
  /// Opens RX/TX pair `id` (below caps().queues) with frames of `pool`, whose memory the device was
  /// opened with. Errors: EBUSY taken by another process, EPERM a right is missing, ENOMEM
  /// (err.where says which limit).
  virtual Result<std::unique_ptr<Queue>> open_queue(QueueId id, PacketPool& pool) = 0;
  /// Frames that match `key` come to us from now on, with `tag` where caps().tags. Rules may
  /// overlap: exact ones go first, then local address and port, then port alone. `to` is the queue
  /// for devices that choose one. Errors: EEXIST the same key is steered already, ENOSPC table
  /// full, ENOTSUP.
  virtual Result<FlowRule> steer(const FlowKey& key, FlowTag tag, Queue& to) = 0;
  /// Frames of `key`, an exact one, are the kernel's from now on, although a rule for its local end
  /// would bring them. Errors: ENOTSUP, ENOSPC.
  virtual Result<FlowRule> spare(const FlowKey& key) {
    (void)key;
    return fail(ENOTSUP, "the device spares no flow");
  }
  /// What the host has on the wire, anew each time that it changes. Until the first time a device
  /// with caps().link_rules gives nothing to rules without a remote end: it knows no station and no
  /// address of the host. Other devices leave it to who takes the frames.
  virtual void set_host(const HostOnWire& host) { (void)host; }
  /// The kernel may have TCP connections of that local port: while `on`, a frame that only a local
  /// end's rule would bring is the kernel's if one of them has its addresses and ports. Dearer than
  /// a rule alone.
  virtual void ask_kernel(uint16_t port, bool on) {
    (void)port;
    (void)on;
  }
  /// Its queues are gone, but the interface goes on over another device, which opening it again
  /// finds.
  virtual bool has_moved() const noexcept { return false; }

 protected:
  friend class FlowRule;
  virtual void unsteer(uint64_t rule_id) noexcept = 0;
  FlowRule rule(uint64_t id) { return FlowRule(this, id); }
  DeviceCaps caps_;
};

inline void FlowRule::reset() {
  if (device_ != nullptr) std::exchange(device_, nullptr)->unsteer(id_);
}

}  // namespace vireo
