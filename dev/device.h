// The device contract: an engine receives and sends frames through queues and installs steering
// rules that select the flows it receives. Back ends: shm, xdp, verbs, mlx5.
// Owner: the engine that opened the queue. Thread: holder of that engine's lock, unless stated
// otherwise. One virtual call per burst or per send; leaf classes are final.
#pragma once

#include <array>
#include <atomic>
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
  kHasTag = 4,  ///< `tag` is the tag of the matching rule
  kMore = 8,    ///< the packet continues in the next descriptor
};
template <>
inline constexpr bool kIsFlags<RxFlags> = true;

/// Bits above the flags: the number of segments the device merged into the packet (LRO), if more
/// than one. The headers are the first segment's, except length, acknowledgement and window.
inline constexpr unsigned kRxSegmentsAt = 8;
constexpr RxFlags with_segments(RxFlags flags, uint32_t segments) {
  return flags | static_cast<RxFlags>(segments << kRxSegmentsAt);
}
/// At least 1.
constexpr uint32_t segments_of(RxFlags flags) {
  const uint32_t n = static_cast<uint32_t>(flags) >> kRxSegmentsAt;
  return n != 0 ? n : 1;
}
/// The packet is in one buffer and is not merged by LRO.
constexpr bool is_single(RxFlags flags) {
  return static_cast<uint16_t>(flags) < static_cast<uint16_t>(RxFlags::kMore);
}

/// One received frame: starts at the Ethernet header (packet->data(), packet->length), or continues
/// the previous descriptor.
struct RxDesc {
  PacketRef packet;
  RxFlags flags = RxFlags::kNone;
  FlowTag tag{};
};

/// One frame to send: header bytes (copied before tx() returns), then the body. If the body has one
/// slice and no device_refs, the device may write `head` into the headroom just before it; `head`
/// may already be there.
///
/// With `mss` set, the frame is a burst of TCP segments that the device cuts (TSO). The body has at
/// most caps.tso_max_bytes and caps.max_body_slices. `head` is the header of the first segment; its
/// length fields cover the whole burst, its checksums may have any value. Each segment gets its own
/// sequence number, lengths and checksums; its IPv4 identification is one higher than that of the
/// segment before (RFC 6864 §4.2). PSH and FIN are set only on the last (RFC 9293 §3.9.1), CWR only
/// on the first (RFC 3168 §6.1.2); all else is the same. The burst is accepted whole or not at all.
struct TxFrame {
  std::span<const std::byte> head;
  std::span<const PacketSlice> body;
  uint16_t mss = 0;  ///< > 0: payload of each segment but the last (needs caps.tso_max_bytes)
};

enum class Doorbell : uint8_t { kNow, kLater };  ///< kLater: more follows, tx_flush() rings

/// What a queue lost since it was opened, by cause; zero if the device does not count it.
struct QueueLosses {
  uint64_t rx_ring_full = 0;  ///< frames: the RX ring was full
  uint64_t rx_no_frame = 0;   ///< frames: no empty buffer, or too long for one
  uint64_t rx_starved = 0;    ///< times no empty frame was posted (a NIC then drops by itself)
  uint64_t rx_refused = 0;    ///< empty frames the device rejected: a bug of ours
  uint64_t tx_refused = 0;    ///< frames to send that the device rejected: a bug of ours
  uint64_t restarts = 0;      ///< times the queue restarted after an error; what it held is lost
};

/// A host interface on the device's wire: the device's own (VLAN 0), or a VLAN on it.
struct HostLink {
  VlanId vlan;
  std::array<uint8_t, 6> mac;
};

/// The host's interfaces and addresses on this wire.
struct HostOnWire {
  std::span<const HostLink> links;
  std::span<const IpAddr> addresses;  ///< unicast, of both families
  bool fragments = false;             ///< deliver fragments of our flows too, if possible
};

/// What the two ends of a TCP connection agreed on in its handshake, and their timestamp clocks.
struct Handshake {
  uint16_t peer_mss = 536;
  bool scales = false, sack = false, timestamps = false, ecn = false;
  uint8_t our_shift = 0, peer_shift = 0;  ///< of the windows that each announces
  uint32_t our_time = 0, peer_time = 0;   ///< the latest TSval of each
};

/// A connection that a listener of the kernel is to have.
struct Opening {
  std::span<const std::byte> ack;  ///< the frame that ended the handshake, with good checksums
  Handshake agreed;
  int error = 0;  ///< result: errno, 0: the listener has it
};

/// How full a receive ring is.
struct RxLevel {
  uint32_t waiting = 0;  ///< frames not yet taken by rx_burst()
  uint32_t most = 0;     ///< ring capacity: beyond it frames are lost; 0: the device cannot tell
};

class Device;

/// A steering rule, removed when the handle is destroyed. An empty handle holds none.
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
  const Device* device() const { return device_; }  ///< the device that holds the rule
  /// Frames of connections to its local end come to us without a rule of their own: not so if
  /// another process shares it since earlier.
  inline bool brings_connections() const;
  inline void reset();
  /// Drops the handle without removing the rule (in a forked child: the rule is the parent's).
  void abandon() { device_ = nullptr; }

 private:
  Device* device_ = nullptr;
  uint64_t id_ = 0;
};

/// One RX and one TX ring.
class Queue {
 public:
  virtual ~Queue() = default;
  /// Returns up to out.size() frames in arrival order; when there is none, costs one cache-line
  /// read.
  virtual unsigned rx_burst(std::span<RxDesc> out) noexcept = 0;
  virtual RxLevel rx_level() const noexcept { return {}; }
  /// From now on received frames carry PacketBuf::hw_time, if caps().stamps. A frame in several
  /// buffers has it in the first.
  virtual void stamp() noexcept {}
  /// Posts empty frames to the RX ring, as many as ring and pool allow. Off the latency path.
  virtual void rx_refill() noexcept = 0;
  /// Queues one frame. @return false: ring or pool is full and nothing was taken; retry after
  /// tx_reap().
  virtual bool tx(const TxFrame& frame, Doorbell bell) noexcept = 0;
  /// Rings the doorbell for the frames queued with Doorbell::kLater.
  virtual void tx_flush() noexcept = 0;
  /// Drops the references to frames that were sent. @return how many.
  virtual unsigned tx_reap() noexcept = 0;
  /// Requests that the next arrival makes wait_fd() readable; events from before this call are
  /// cleared and do not wake a sleeper. The request stays valid whatever rx_burst() takes
  /// meanwhile. @return false: frames are waiting already, do not sleep; threads already asleep are
  /// woken by the next arrival. Errors: ENODEV after the device is gone.
  virtual Result<bool> arm() noexcept = 0;
  /// Whether several frames have come since the last call, and waking a sleeper for each would cost
  /// more than to look again soon.
  virtual bool comes_in_bulk() noexcept { return false; }
  /// For poll(2)/epoll(7): readable after arm() and an arrival. Constant. -1 if the device cannot
  /// sleep.
  virtual int wait_fd() const noexcept = 0;
  /// Clears the readiness of wait_fd() after a wake-up, if it does not clear itself.
  virtual void wake_ack() noexcept {}
  /// False once the device is gone (interface removed, reset): no frame will come or leave any
  /// more. A queue that alone failed restarts.
  virtual bool alive() noexcept { return true; }
  /// From now on other processes may use the hardware queue, too.
  virtual void share() noexcept {}
  /// May cost a system call.
  virtual QueueLosses losses() const noexcept { return {}; }

  /// The place to which the device would copy the head of the next frame, with room for any head. A
  /// head written there and given to the next tx() is not copied. This avoids a store-forwarding
  /// stall: wide loads of the copy would wait for the small stores that just wrote the head. Null:
  /// there is no such place, use your own memory. Valid until the next tx().
  std::byte* head_place() const noexcept { return head_place_; }
  /// Announces that a frame of `bytes` is about to be given to tx(). If it will be copied behind
  /// its head, another core has read the previous frame there; prefetching gets those cache lines
  /// back before they are written. The first line is left out: that core may be polling it. Called
  /// too early, that core's prefetcher, which runs ahead, would take the lines away again.
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
  /// Opens RX/TX pair `id` (below caps().queues) with frames of `pool`, whose memory was given when
  /// the device was opened. Errors: EBUSY used by another process, EPERM missing privilege, ENOMEM
  /// (err.where names the limit).
  virtual Result<std::unique_ptr<Queue>> open_queue(QueueId id, PacketPool& pool) = 0;
  /// From now on frames that match `key` come to us, with `tag` if caps().tags. Rules may overlap:
  /// exact ones take precedence, then local address and port, then port alone. `to` is the queue,
  /// for devices that select one. Errors: EEXIST the same key is already steered, ENOSPC table
  /// full, ENOTSUP.
  virtual Result<FlowRule> steer(const FlowKey& key, FlowTag tag, Queue& to) = 0;
  /// From now on frames of the exact `key` go to the kernel, although a rule for its local end
  /// would match them. Errors: ENOTSUP, ENOSPC.
  virtual Result<FlowRule> spare(const FlowKey& key) {
    (void)key;
    return fail(ENOTSUP, "the device spares no flow");
  }
  /// A queue by which copies of frames come: for share() of UDP ends. It sends nothing. Errors:
  /// ENOTSUP, and those of open_queue().
  virtual Result<std::unique_ptr<Queue>> open_copies(PacketPool& pool) {
    (void)pool;
    return fail(ENOTSUP, "the device copies no frame");
  }
  /// From now on `key`, a local end, is steered to all members of the group that call this for it,
  /// the sharers. Of UDP each of them gets a copy of each frame, and the kernel the frame itself,
  /// whose sockets with DeviceGroup::filter_of_copied() do not hear it; some are the kernel's
  /// alone, for all to hear: fragments, frames that cannot be copied. If another process steers the
  /// key, the kernel gets that one's until it shares, too. open_copies() comes first. Of TCP a SYN
  /// goes to one of those that accept (see accepting()), chosen by a hash of addresses and ports;
  /// if none does, to the kernel. Any other frame that matches no exact rule goes to the first
  /// sharer: the others need an exact rule for each connection. When the first leaves, another
  /// becomes the first. A SYN that is sent again goes to the same sharer, unless it accepts no more
  /// or another one joined or left. Errors: as steer(); EEXIST this process shares the key already,
  /// or steers it; EBUSY another steers it; ENOSPC too many shared ends.
  virtual Result<FlowRule> share(const FlowKey& key, Queue& to) {
    (void)key;
    (void)to;
    return fail(ENOTSUP, "the device shares no port");
  }
  /// The time (ns of CLOCK_MONOTONIC) until which this process accepts connections of shared ends,
  /// at first 0. Written by the process in place, as often as it likes: kAcceptsNow while it waits
  /// for them, 0 when it takes none. Valid while the device is open. Null: the device shares none.
  virtual std::atomic<uint64_t>* accepting() noexcept { return nullptr; }
  static constexpr uint64_t kAcceptsNow = UINT64_MAX;
  /// Gives the host's interfaces and addresses on the wire; called again after each change. Until
  /// the first call a device with caps().link_rules applies no rule without a remote end, because
  /// it does not know the host's MAC and IP addresses. Other devices leave this check to the
  /// receiver of the frames.
  virtual void set_host(const HostOnWire& host) { (void)host; }
  /// Tells that the kernel may have TCP connections on this local port. While `on`, a frame that
  /// matches only a rule for a local end goes to the kernel if a kernel connection has its
  /// addresses and ports. More expensive than a rule alone.
  virtual void ask_kernel(uint16_t port, bool on) {
    (void)port;
    (void)on;
  }
  /// Gives the kernel a frame that came to us, with good checksums: it receives it by this
  /// interface, as if it came now. A system call of some 20 us. Errors: ENOTSUP, EPERM, EMSGSIZE.
  virtual Result<void> give_to_kernel(std::span<const std::byte> frame) {
    (void)frame;
    return fail(ENOTSUP, "the device gives the kernel no frame");
  }
  /// Gives connections whose handshake was done here to the kernel's listener of their local end,
  /// where they wait for accept(2); it receives the frames by this interface. The rules that bring
  /// us their frames are to be removed after that. Some milliseconds, and 50 us for each. Errors:
  /// as prepare_listener(); Opening::error: ECONNREFUSED there is no listener, EEXIST the kernel
  /// has a connection of these ends, EINVAL what was agreed is off by sysctl.
  virtual Result<void> give_to_listener(std::span<Opening> openings) {
    (void)openings;
    return prepare_listener();
  }
  /// Whether that can be; what it needs once, a few milliseconds, is done here. Errors: ENOTSUP,
  /// EPERM.
  virtual Result<void> prepare_listener() {
    return fail(ENOTSUP, "the device gives the kernel's listeners no connection");
  }
  /// The queues are gone, but the interface continues over another device; opening the interface
  /// again finds it.
  virtual bool has_moved() const noexcept { return false; }

 protected:
  friend class FlowRule;
  virtual void unsteer(uint64_t rule_id) noexcept = 0;
  virtual bool brings_connections(uint64_t rule_id) noexcept {
    (void)rule_id;
    return true;
  }
  FlowRule rule(uint64_t id) { return FlowRule(this, id); }
  DeviceCaps caps_;
};

inline bool FlowRule::brings_connections() const {
  return device_ == nullptr || device_->brings_connections(id_);
}

inline void FlowRule::reset() {
  if (device_ != nullptr) std::exchange(device_, nullptr)->unsteer(id_);
}

}  // namespace vireo
