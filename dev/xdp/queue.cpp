#include "dev/xdp/queue.h"

#include <poll.h>

#include <bit>
#include <cstring>

#include "core/log.h"
#include "dev/xdp/group/sharing.h"
#include "dev/xdp/kernel_version.h"
#include "dev/xdp/uapi.h"
#include "dev/xdp/unfinished.h"

namespace vireo::xdp {
namespace {

/// Rounds of 32 frames (the kernel's TX_BATCH_SIZE) that one kick may send before it leaves the
/// rest for later.
constexpr unsigned kKickRounds = 64;
constexpr uint32_t kBatch = 32;

/// Before Linux 6.17 the consumer index moves only when the kernel has taken all it had looked at,
/// possibly the whole ring: progress by single batches is not visible.
bool shows_each_batch() noexcept { return kernel_version() >= 6017; }

/// Least number of frames posted for receiving: more small datagrams than a kernel socket holds
/// (socket(7), rmem_default).
constexpr uint32_t kMinFill = 512;
/// If more than this fraction of them is waiting at once, the number is doubled.
constexpr uint32_t kRoomy = 8;
/// After this many frames received without that, the number is halved.
constexpr uint32_t kCalmFrames = 65'536;

constexpr size_t kCacheLine = 64;

void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

xdp_statistics statistics_of(int fd) {
  xdp_statistics s{};
  unsigned length = sizeof s;
  (void)get_option(fd, SOL_XDP, XDP_STATISTICS, &s, &length);
  return s;
}

}  // namespace

XdpQueue::XdpQueue(const QueueSetup& setup, Xsk xsk, std::shared_ptr<Umem> umem,
                   std::shared_ptr<Steering> steering, PacketPool& pool,
                   std::unique_ptr<SharedRings> rings, std::shared_ptr<Sharing> sharing)
    : pool_(pool),
      pool_at_(static_cast<uint64_t>(pool.memory().data() - umem->arena().bytes().data())),
      frame_shift_(static_cast<uint32_t>(std::countr_zero(pool.frame_bytes()))),
      setup_(setup),
      busy_poll_(setup.busy_poll),
      is_busy_poll_proved_(xsk.is_zero_copy()),
      xsk_(std::move(xsk)),
      shared_{.rings = std::move(rings), .sharing = std::move(sharing)},
      frames_(umem->arena().owners()),
      in_queue_(FrameOwners::of_queue(shared_.rings ? shared_.rings->number() : 0)),
      tx_most_(shared_.rings ? std::min(xsk_.tx.size(), ReturnRing::kEntries) : xsk_.tx.size()),
      // At most half the pool: frames are needed for sending, too.
      fill_most_(std::min(xsk_.rx.size(), pool.size() / 2)),
      fill_target_(std::min(fill_most_, kMinFill)),
      process_(static_cast<pid_t>(sys(SYS_getpid))),
      umem_(std::move(umem)),
      steering_(std::move(steering)) {
  own_in_flight_ = std::make_unique<uint16_t[]>(pool.frames());
  if (shared_.rings != nullptr) return;
  private_owner_ = std::make_unique<uint8_t[]>(pool.frames());
  private_in_flight_ = std::make_unique<uint16_t[]>(pool.frames());
  frames_ = {.owner = {private_owner_.get(), pool.frames()},
             .in_flight = {private_in_flight_.get(), pool.frames()}};
}

XdpQueue::~XdpQueue() {
  // A forked child shares the socket and the table: there only its descriptors are closed.
  const bool is_ours = sys(SYS_getpid) == process_;
  if (is_ours) steering_->clear_socket(setup_.id);
  umem_->forget(xsk_.fd());
  if (is_ours && shared_.is_on) leave_shared();
  xsk_ = Xsk();  // unbinds and waits until no driver uses the frames
  if (shared_.sharing == nullptr) {
    return_frames();
    return;
  }
  if (!is_ours) return;
  shared_.sharing->close_queue(shared_.rings->number(), [this] {
    if (!shared_.is_on) return_frames();
  });
}

/// Returns all that the kernel had.
void XdpQueue::return_frames() noexcept {
  for (uint32_t i = 0; i < pool_.frames(); ++i) {
    PacketBuf& p = pool_.at(i);
    while (own_in_flight_[i] > 0) complete(p);
    if (frames_.owner[i] != in_queue_) continue;
    frames_.owner[i] = frames_.me;
    p.refs = 1;
    PacketPool::drop(&p);
  }
}

unsigned XdpQueue::rx_burst(std::span<RxDesc> out) noexcept {
  uint32_t n = xsk_.rx.ready();
  if (n == 0) [[likely]]
    return idle();
  if (n > fill_target_ / kRoomy || calm_frames_ > kCalmFrames) [[unlikely]]
    fit_fill(n);
  n = std::min(n, static_cast<uint32_t>(out.size()));
  if (setup_.multi_frame) [[unlikely]]
    n = whole_packets(n);
  if (shared_.is_on) [[unlikely]] {
    n = claim(n);
    if (n == 0) return 0;
  }

  std::byte* const base = pool_.memory().data() - pool_at_;
  prefetch(base + xsk_.rx.front(0).addr);
  for (uint32_t i = 0; i < n; ++i) {
    const xdp_desc& d = xsk_.rx.front(i);
    if (i + 1 < n) prefetch(base + xsk_.rx.front(i + 1).addr);
    PacketBuf& p = packet_at(d.addr);
    p.data_at = static_cast<uint16_t>(d.addr & ((uint64_t{1} << frame_shift_) - 1));
    p.length = static_cast<uint16_t>(d.len);
    frames_.owner[p.index] = frames_.me;
    RxDesc& o = out[i];
    o.packet.reset(&p);
    o.flags = (d.options & kPacketContinues) != 0 ? RxFlags::kMore : RxFlags::kNone;
    o.tag = setup_.tags ? take_tag(o, p.data()) : FlowTag();
  }
  // A separate loop, when all prefetches for it have been issued.
  if (setup_.is_virtual) {
    for (RxDesc& o : out.first(n))
      if (is_unfinished(o.packet->data(), o.packet->length)) o.flags |= RxFlags::kL4Ok;
  }
  if (shared_.is_on) [[unlikely]]
    take_over(out.first(n));
  xsk_.rx.release(n);
  rx_held_count_ -= static_cast<int32_t>(n);
  calm_frames_ += n;
  return n;
}

/// Adapts the number of posted frames. Frames are used in turn: each returns when all others have
/// been used. If it has left the caches by then (with the kernel's descriptor of it), that costs a
/// tenth of a round trip. So the kernel gets as many as bursts need, and few while there are none.
void XdpQueue::fit_fill(uint32_t waiting) noexcept {
  calm_frames_ = 0;
  if (shared_.is_on) return;
  if (waiting > fill_target_ / kRoomy)
    fill_target_ = std::min(2 * fill_target_, fill_most_);
  else
    fill_target_ = std::max(fill_target_ / 2, std::min(fill_most_, kMinFill));
}

/// Prefetches the memory of the next frame: the kernel writes descriptor and frame some time before
/// it moves the producer index, so most of the transfer between caches is done by then. In copy
/// mode frames are used in the order they were posted. In busy-poll mode the driver's interrupts
/// are off and only the system call moves frames.
unsigned XdpQueue::idle() noexcept {
  prefetch(&xsk_.rx.front(0));
  if (rx_held_count_ != 0 && !xsk_.is_zero_copy()) [[likely]] {
    const uint64_t next = xsk_.fill[xsk_.rx.consumed() + shared_.fill_ahead];
    const std::byte* const data = pool_.memory().data() - pool_at_ + next + kKernelHeadroom;
    prefetch(data);
    prefetch(data + kCacheLine);
    prefetch(&packet_at(next));
  }
  if (busy_poll_) [[unlikely]]
    busy_poll();
  return 0;
}

/// Runs the driver in the program's thread. The kernel must know which NAPI instance delivers the
/// frames. In copy mode some kernels learn it from a received frame, some (6.18 for one) never do;
/// then every call would be useless, so busy polling is given up.
void XdpQueue::busy_poll() noexcept {
  if (!is_busy_poll_proved_ && xsk_.rx.consumed() != 0) {
    is_busy_poll_proved_ = true;
    int napi = 0;
    unsigned length = sizeof napi;
    if (get_option(xsk_.fd(), SOL_SOCKET, SO_INCOMING_NAPI_ID, &napi, &length) == 0 && napi == 0) {
      busy_poll_ = false;
      log<LogLevel::kWarn>(
          "{}: VIREO_XDP_BUSY_POLL: this kernel runs no driver for a queue that it copies (it does "
          "so with zero-copy): interrupts go on",
          setup_.interface);
      return;
    }
  }
  sys(SYS_recvfrom, xsk_.fd(), 0, 0, MSG_DONTWAIT, 0, 0);
}

/// How many of `ready` descriptors end with a complete packet; all of them if one packet is longer
/// than that.
uint32_t XdpQueue::whole_packets(uint32_t ready) const noexcept {
  for (uint32_t n = ready; n > 0; --n)
    if ((xsk_.rx.front(n - 1).options & kPacketContinues) == 0) return n;
  return ready;
}

FlowTag XdpQueue::take_tag(RxDesc& d, std::byte* data) const noexcept {
  steer_meta m;
  std::memcpy(&m, data - sizeof m, sizeof m);
  if (m.magic != STEER_META_MAGIC || m.tag == 0) return FlowTag();
  d.flags |= RxFlags::kHasTag;
  return FlowTag(m.tag);
}

void XdpQueue::rx_refill() noexcept {
  if (shared_.is_on) [[unlikely]]
    return refill_shared();
  const auto held = static_cast<uint32_t>(rx_held_count_);
  if (held >= fill_target_) return;
  const uint32_t want = std::min(fill_target_ - held, xsk_.fill.size() - xsk_.fill.waiting());
  uint32_t n = 0;
  for (; n < want; ++n) {
    PacketBuf* p = take_empty();
    if (p == nullptr) [[unlikely]]
      break;
    frames_.owner[p->index] = in_queue_;
    xsk_.fill.slot(n) = address_of(*p, 0);
  }
  if (n == 0) return;
  xsk_.fill.publish(n);
  rx_held_count_ += static_cast<int32_t>(n);
  wake_fill();
}

/// A frame to post: without the tag of its last packet.
PacketBuf* XdpQueue::take_empty() noexcept {
  PacketBuf* const p = pool_.take_for_rx();
  if (setup_.tags && p != nullptr)
    std::memset(p->frame + kKernelHeadroom - sizeof(steer_meta), 0, sizeof(steer_meta));
  return p;
}

void XdpQueue::wake_fill() noexcept {
  if (!setup_.need_wakeup) return;
  // The producer store must be visible before we read the flag, or kernel and program could miss
  // each other's store and both sleep.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (xsk_.fill.needs_wakeup()) sys(SYS_recvfrom, xsk_.fd(), 0, 0, MSG_DONTWAIT, 0, 0);
}

bool XdpQueue::tx(const TxFrame& frame, Doorbell bell) noexcept {
  VIREO_DEBUG_ASSERT(frame.mss == 0);
  bool taken;
  if (frame.body.size() == 1 && takes_head(frame)) {
    taken = tx_in_place(frame);
  } else {
    size_t total = frame.head.size();
    for (const PacketSlice& s : frame.body) total += s.length;
    if (total <= (size_t{1} << frame_shift_)) [[likely]]
      taken = tx_gathered(frame, static_cast<uint32_t>(total));
    else
      taken = tx_chained(frame, static_cast<uint32_t>(total));
  }
  if (taken) ring_bell(bell);
  return taken;
}

/// The head fits before the first slice: nothing valid is there, and nobody reads the frame.
bool XdpQueue::takes_head(const TxFrame& frame) const noexcept {
  const PacketSlice& s = frame.body[0];
  const PacketBuf& p = *s.packet;
  return (p.pool == &pool_) & (p.device_refs == 0) & (s.at <= p.data_at) &
         (s.at >= frame.head.size());
}

/// Posts the first descriptor: the head, copied unless it is in place already, and the first slice.
void XdpQueue::post_with_head(const TxFrame& frame, bool more) noexcept {
  const PacketSlice& s = frame.body[0];
  const auto head = static_cast<uint32_t>(frame.head.size());
  std::byte* const to = s.packet->frame + s.at - head;
  if (frame.head.data() != to && head != 0) std::memcpy(to, frame.head.data(), head);
  ++s.packet->refs;
  post(0, *s.packet, s.at - head, head + s.length, more);
}

bool XdpQueue::tx_in_place(const TxFrame& frame) noexcept {
  if (tx_room() == 0) [[unlikely]]
    return false;
  post_with_head(frame, false);
  xsk_.tx.publish(1);
  return true;
}

bool XdpQueue::tx_gathered(const TxFrame& frame, uint32_t total) noexcept {
  if (tx_room() == 0) [[unlikely]]
    return false;
  PacketBuf* p = pool_.take();
  if (p == nullptr) [[unlikely]]
    return false;
  std::byte* to = p->frame;
  std::memcpy(to, frame.head.data(), frame.head.size());
  to += frame.head.size();
  for (const PacketSlice& s : frame.body) {
    std::memcpy(to, s.packet->frame + s.at, s.length);
    to += s.length;
  }
  post(0, *p, 0, total, false);
  xsk_.tx.publish(1);
  return true;
}

/// Sends a packet longer than a frame: the body's slices in place, one descriptor each, if
/// possible; else copied into new frames.
bool XdpQueue::tx_chained(const TxFrame& frame, uint32_t total) noexcept {
  // caps().mtu limits frames; a longer one could never be sent.
  VIREO_ASSERT(setup_.multi_frame);
  bool in_place = !frame.body.empty() && frame.body.size() < kMaxDescriptors;
  for (const PacketSlice& s : frame.body) in_place &= s.packet->pool == &pool_ && s.length > 0;
  if (!in_place) return gather(frame, total);

  const bool head_fits = takes_head(frame);
  const auto n = static_cast<uint32_t>(frame.body.size()) + (head_fits ? 0 : 1);
  if (tx_room() < n) return false;
  auto rest = frame.body;
  if (head_fits) {
    post_with_head(frame, n > 1);
    rest = rest.subspan(1);
  } else {
    PacketBuf* p = pool_.take();
    if (p == nullptr) return false;
    std::memcpy(p->frame, frame.head.data(), frame.head.size());
    post(0, *p, 0, static_cast<uint32_t>(frame.head.size()), true);
  }
  uint32_t at = 1;
  for (const PacketSlice& s : rest) {
    ++s.packet->refs;
    post(at, *s.packet, s.at, s.length, at + 1 < n);
    ++at;
  }
  xsk_.tx.publish(n);
  return true;
}

bool XdpQueue::gather(const TxFrame& frame, uint32_t total) noexcept {
  const uint32_t frame_bytes = 1U << frame_shift_;
  const uint32_t n = (total + frame_bytes - 1) / frame_bytes;
  VIREO_ASSERT(n <= kMaxDescriptors);
  if (tx_room() < n || pool_.ready_count() < n) return false;
  PacketBuf* p = pool_.take();
  uint32_t used = 0;
  uint32_t at = 0;
  const auto append = [&](const std::byte* from, uint32_t length) {
    while (length > 0) {
      if (used == frame_bytes) {
        post(at++, *p, 0, used, true);
        p = pool_.take();
        used = 0;
      }
      const uint32_t part = std::min(length, frame_bytes - used);
      std::memcpy(p->frame + used, from, part);
      used += part;
      from += part;
      length -= part;
    }
  };
  append(frame.head.data(), static_cast<uint32_t>(frame.head.size()));
  for (const PacketSlice& s : frame.body) append(s.packet->frame + s.at, s.length);
  post(at++, *p, 0, used, false);
  xsk_.tx.publish(n);
  return true;
}

/// Writes a descriptor, not published yet. The caller has already taken its reference.
void XdpQueue::post(uint32_t ahead, PacketBuf& p, uint32_t at, uint32_t length,
                    bool more) noexcept {
  xdp_desc& d = xsk_.tx.slot(ahead);
  d.addr = address_of(p, at);
  d.len = length;
  d.options = more ? kPacketContinues : 0;
  ++p.device_refs;
  ++own_in_flight_[p.index];
  ++frames_.in_flight[p.index];
  ++in_flight_;
}

void XdpQueue::ring_bell(Doorbell bell) noexcept {
  kick_due_ = true;
  if (bell == Doorbell::kNow) kick();
}

void XdpQueue::tx_flush() noexcept {
  if (kick_due_) kick();
}

bool XdpQueue::kernel_wants_kick() const noexcept {
  if (!setup_.need_wakeup || xsk_.tx.needs_wakeup()) return true;
  // The flag is clear: check again after a fence, or kernel and program could miss each other's
  // store.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return xsk_.tx.needs_wakeup();
}

/// Tells the kernel about published frames. Frames that it cannot take now stay due, for the next
/// reap, flush or arm.
/// @return false: an immediate retry may help.
bool XdpQueue::kick() noexcept {
  if (!kernel_wants_kick()) {
    kick_due_ = false;
    return true;
  }
  uint32_t waiting = 0;
  uint32_t unseen = 0;  // rounds without visible progress
  // After a kick without progress in all its rounds, later ones try only briefly until there is
  // some.
  const bool was_stuck = stuck_with_ != 0 && xsk_.tx.waiting() >= stuck_with_;
  stuck_with_ = 0;
  for (unsigned round = 0; round < kKickRounds; ++round) {
    if (shared_.is_on && !try_sending()) [[unlikely]]
      return false;
    const long r = sys(SYS_sendto, xsk_.tx_fd(), 0, 0, MSG_DONTWAIT, 0, 0);
    if (shared_.is_on) [[unlikely]]
      end_sending();
    if (r >= 0) [[likely]] {
      // Some kernels report no error when COMPLETION is full, of others' frames perhaps.
      kick_due_ = shared_.is_on && xsk_.tx.waiting() != 0;
      return true;
    }
    if (r == -ENXIO) dead_ = true;  // unbound: the interface is gone
    if (r != -EAGAIN && r != -EBUSY && r != -ENOBUFS && r != -EINTR)
      return true;  // for example ENETDOWN: wait until it is up
    // EAGAIN after a batch: continue while frames leave. Without progress a buffer limit is
    // reached: try later.
    const uint32_t left = xsk_.tx.waiting();
    if (left == 0) {
      kick_due_ = false;
      return true;
    }
    unseen = left == waiting ? unseen + 1 : 0;
    if (unseen > (shows_each_batch() || was_stuck ? 0 : left / kBatch)) {
      stuck_with_ = left;
      return false;
    }
    waiting = left;
  }
  return false;
}

unsigned XdpQueue::tx_reap() noexcept {
  if (kick_due_) [[unlikely]]
    kick();
  if (shared_.is_on) [[unlikely]]
    return reap_shared();
  const uint32_t n = xsk_.completion.ready_now();
  for (uint32_t i = 0; i < n; ++i) complete(packet_at(xsk_.completion.front(i)));
  if (n > 0) xsk_.completion.release(n);
  in_flight_ -= n;
  return n;
}

Result<bool> XdpQueue::arm() noexcept {
  if (dead_) return fail(ENODEV, "AF_XDP queue");
  const bool told = !kick_due_ || kick();
  if (dead_) return fail(ENODEV, "AF_XDP queue");
  if (!told) return false;
  if (shared_.is_on) [[unlikely]]
    settle_shared();
  // The descriptor is readable while the RX ring is not empty, so an arrival after this check wakes
  // poll(2) at once.
  return xsk_.rx.ready_now() == 0;
}

bool XdpQueue::alive() noexcept {
  if (dead_) return false;
  int error = 0;
  unsigned length = sizeof error;
  if (get_option(xsk_.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error == ENETDOWN ||
      error == ENODEV || !steering_->is_attached())
    dead_ = true;
  return !dead_;
}

/// From XDP_STATISTICS. tx_ring_empty_descs is omitted: it counts times with nothing to send, which
/// is no loss. Kernels before 5.9 do not fill the last three fields.
QueueLosses XdpQueue::losses() const noexcept {
  const xdp_statistics received = statistics_of(xsk_.fd());
  return {.rx_ring_full = received.rx_ring_full,
          .rx_no_frame = received.rx_dropped,
          .rx_starved = received.rx_fill_ring_empty_descs,
          .rx_refused = received.rx_invalid_descs,
          .tx_refused = statistics_of(xsk_.tx_fd()).tx_invalid_descs};
}

}  // namespace vireo::xdp
