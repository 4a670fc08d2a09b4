#include "dev/verbs/queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/log.h"
#include "dev/verbs/late_libibverbs.h"

namespace vireo::verbs {

Result<OpenedQueue> make_verbs_queue(VerbsDevice& device, const std::shared_ptr<Context>& context,
                                     std::span<std::byte> arena, PacketPool& pool, DeviceCaps& caps,
                                     const VerbsOptions& options) {
  auto made = VerbsQueue::create(device, context, arena, pool, caps, options);
  if (!made) return std::unexpected(made.error());
  caps.inline_bytes = static_cast<uint16_t>((*made)->inline_bytes());
  caps.tags = (*made)->tells_tags();
  if (!(*made)->segments()) caps.tso_max_bytes = 0;
  caps.stamps = (*made)->tells_time();
  ibv_qp* const pair = (*made)->pair();
  return OpenedQueue{std::move(*made), pair};
}

Result<std::unique_ptr<VerbsQueue>> VerbsQueue::create(VerbsDevice& device,
                                                       const std::shared_ptr<Context>& context,
                                                       std::span<std::byte> arena, PacketPool& pool,
                                                       const DeviceCaps& caps,
                                                       const VerbsOptions& options) {
  auto shape = shape_of(context->limits(), pool, caps, options);
  if (!shape) return std::unexpected(shape.error());
  QueueShape& s = *shape;
  s.refill = std::min(s.refill, kBatch);
  const auto clock = StampClock::of(*context, options.stamps, Clock::now());
  const auto told = ReceiveCq::wishes(options.stamps, clock.has_value());
  const uint32_t inline_bytes = std::min(options.inline_bytes, kOwnBytes);
  auto pair = Pair::create(context, {s.tx_slots, s.tx_segments, inline_bytes, s.rx_slots,
                                     s.rx_segments, caps.tso_max_bytes > 0, nullptr, told});
  if (!pair) return std::unexpected(pair.error());
  auto memory = Arena::create(size_t{s.tx_slots} * kOwnBytes, false);
  if (!memory) return std::unexpected(memory.error());
  auto region = context->register_memory(memory->bytes());
  if (!region) return std::unexpected(region.error());
  return std::unique_ptr<VerbsQueue>(new VerbsQueue(device, context, std::move(*pair),
                                                    std::move(*memory), std::move(*region), arena,
                                                    pool, s, inline_bytes, clock));
}

VerbsQueue::VerbsQueue(VerbsDevice& device, const std::shared_ptr<Context>& context, Pair pair,
                       Arena own_memory, Region own_region, std::span<std::byte> arena,
                       PacketPool& pool, const QueueShape& setup, uint32_t inline_bytes,
                       const std::optional<StampClock>& clock)
    : device_(device),
      context_(context),
      arena_(arena),
      pool_(pool),
      setup_(setup),
      inline_bytes_(std::min(pair.granted().max_inline_data, inline_bytes)),
      rx_frames_(size_t{setup.rx_slots} * setup.rx_segments),
      fill_(setup.rx_slots),
      received_(pair, clock),
      tx_slots_(setup.tx_slots),
      own_memory_(std::move(own_memory)),
      own_region_(std::move(own_region)),
      pair_(std::move(pair)) {
  for (uint32_t i = setup.rx_slots; i-- > 0;) rx_free_.push_back(i);
  rx_refill();
}

VerbsQueue::~VerbsQueue() {
  device_.close(*this);
  if (context_->is_ours()) {
    wake_ack();
    // Until then the device may still access the memory that is freed next.
    (void)pair_.reset();
  } else {
    own_region_.abandon();
  }
  while (tx_head_ != tx_tail_) release(static_cast<uint32_t>(tx_head_++ % setup_.tx_slots));
  drop_receives();
}

/// The QP is in the error state: empties both rings and restarts it, or gives up the device.
void VerbsQueue::begin_anew() noexcept {
  if (!device_.may_begin_anew(std::exchange(has_carried_, false))) return;
  if (!pair_.reset()) return device_.note_gone();
  ibv_wc wc[kBatch];  // completions of forgotten requests
  while (ibv_poll_cq(pair_.sent(), static_cast<int>(kBatch), wc) > 0) {
  }
  while (received_.front(kBatch) != nullptr) received_.take();
  received_.rest();
  losses_.tx_refused += tx_tail_ - tx_head_;
  while (tx_head_ != tx_tail_) release(static_cast<uint32_t>(tx_head_++ % setup_.tx_slots));
  staged_ = since_signal_ = 0;
  holds_unsignaled_ = false;
  drop_receives();
  if (!pair_.make_ready()) return device_.note_gone();
  device_.note_begun();
  if (losses_.restarts++ == 0)
    log<LogLevel::kWarn>("RDMA: a queue pair failed and began anew; vireo-stat counts them");
  rx_refill();
}

void VerbsQueue::drop_receives() noexcept {
  for (PacketBuf*& p : rx_frames_)
    if (p != nullptr) PacketPool::drop(std::exchange(p, nullptr));
  rx_free_.clear();
  for (uint32_t i = setup_.rx_slots; i-- > 0;) rx_free_.push_back(i);
}

// ---- receiving ----------------------------------------------------------------------------------

void VerbsQueue::rx_refill() noexcept {
  ibv_recv_wr wr[kBatch];
  ibv_sge sge[kBatch * kMaxSegments];
  uint32_t posted = setup_.rx_slots - static_cast<uint32_t>(rx_free_.size());
  const uint32_t target = fill_.target(posted);
  while (posted < target && device_.is_usable()) {
    uint32_t n = 0;
    for (; n < setup_.refill && posted < target; ++n, ++posted) {
      if (pool_.rx_count() < setup_.rx_segments) break;
      const uint32_t slot = rx_free_[rx_free_.size() - 1 - n];
      ibv_sge* const first = &sge[size_t{n} * setup_.rx_segments];
      for (uint32_t i = 0; i < setup_.rx_segments; ++i) {
        PacketBuf* p = pool_.take();
        rx_frames_[size_t{slot} * setup_.rx_segments + i] = p;
        first[i] = {reinterpret_cast<uintptr_t>(p->data()),
                    pool_.frame_bytes() - PacketPool::kHeadroom, context_->arena_lkey()};
      }
      wr[n] = {slot, nullptr, first, static_cast<int>(setup_.rx_segments)};
      if (n > 0) wr[n - 1].next = &wr[n];
    }
    if (n == 0) {
      if (rx_free_.size() == setup_.rx_slots) ++losses_.rx_starved;
      return;
    }
    ibv_recv_wr* bad = nullptr;
    rx_free_.resize(rx_free_.size() - n);
    if (ibv_post_recv(pair_.get(), wr, &bad) != 0) [[unlikely]]
      return device_.note_broken();  // the frames are returned at the restart
    if (n < setup_.refill) return;
  }
}

/// Delivers the frames of a receive. @return descriptors written; 0: `out` has too few.
unsigned VerbsQueue::deliver(const Receipt& r, std::span<RxDesc> out) noexcept {
  const uint32_t room = pool_.frame_bytes() - PacketPool::kHeadroom;
  const uint32_t used = std::max(1U, (r.bytes + room - 1) / room);
  if (used > out.size()) return 0;
  PacketBuf** frames = &rx_frames_[size_t{r.slot} * setup_.rx_segments];
  for (uint32_t i = 0; i < setup_.rx_segments; ++i) {
    PacketBuf* p = std::exchange(frames[i], nullptr);
    if (i >= used) {
      PacketPool::drop(p);
      continue;
    }
    p->length = static_cast<uint16_t>(std::min(room, r.bytes - i * room));
    p->hw_time = r.time;
    __builtin_prefetch(p->data());
    out[i] = {PacketRef(p), i + 1 < used ? r.flags | RxFlags::kMore : r.flags, r.tag};
  }
  rx_free_.push_back(r.slot);
  has_carried_ = true;
  return used;
}

/// Handles a receive that failed.
void VerbsQueue::drop_receive(const Receipt& r) noexcept {
  for (uint32_t i = 0; i < setup_.rx_segments; ++i)
    PacketPool::drop(std::exchange(rx_frames_[size_t{r.slot} * setup_.rx_segments + i], nullptr));
  rx_free_.push_back(r.slot);
  if (r.status != IBV_WC_WR_FLUSH_ERR) ++losses_.rx_refused;
  device_.note_broken();  // whatever the first cause
}

unsigned VerbsQueue::rx_burst(std::span<RxDesc> out) noexcept {
  unsigned n = 0;
  while (n < out.size()) {
    const Receipt* const r = received_.front(out.size() - n);
    if (r == nullptr) break;
    if (r->status != IBV_WC_SUCCESS) [[unlikely]] {
      drop_receive(*r);
    } else {
      const unsigned used = deliver(*r, out.subspan(n));
      if (used == 0) break;
      n += used;
    }
    received_.take();
  }
  received_.rest();
  if (received_.is_broken()) [[unlikely]]
    device_.note_gone();
  return n;
}

Result<bool> VerbsQueue::arm() noexcept {
  if (device_.is_gone()) return fail(ENODEV, "RDMA queue");
  if (!device_.is_usable()) return false;
  wake_ack();  // an old event would end the sleep at once
  if (ibv_req_notify_cq(received_.get(), 0) != 0) {
    device_.note_gone();
    return fail(ENODEV, "RDMA queue");
  }
  ever_armed_ = true;
  // Completions before the request cause no event, so check once more. The request is made even if
  // frames are left, because other threads may sleep on this queue.
  if (received_.has_left()) return false;
  const bool none = received_.front(1) == nullptr;
  received_.rest();
  return none;
}

void VerbsQueue::wake_ack() noexcept {
  if (!ever_armed_) return;
  ibv_cq* cq;
  void* cookie;
  while (library().get_cq_event(pair_.channel(), &cq, &cookie) == 0) library().ack_cq_events(cq, 1);
}

bool VerbsQueue::alive() noexcept {
  if (device_.is_there() && !device_.is_usable()) begin_anew();
  return !device_.is_gone();
}

// ---- sending ------------------------------------------------------------------------------------

bool VerbsQueue::tx(const TxFrame& frame, Doorbell bell) noexcept {
  if (tx_tail_ - tx_head_ == setup_.tx_slots || !device_.is_usable()) [[unlikely]] {
    tx_flush();
    return false;
  }
  size_t total = frame.head.size();
  for (const PacketSlice& s : frame.body) total += s.length;
  const auto slot = static_cast<uint32_t>(tx_tail_ % setup_.tx_slots);
  ibv_send_wr& wr = wr_[staged_];
  wr = {};
  wr.wr_id = tx_tail_;
  wr.sg_list = sge_[staged_];
  wr.opcode = IBV_WR_SEND;
  if (setup_.checksums) wr.send_flags = IBV_SEND_IP_CSUM;
  if (frame.mss > 0) {
    // The caller respects caps(): a TCP header, slices of the arena, not more than one send takes.
    VIREO_ASSERT(frame.head.size() <= kOwnBytes && can_lie(frame));
    put_in_place(frame, slot);
    wr.opcode = IBV_WR_TSO;
    wr.tso.hdr = own_bytes(slot);
    wr.tso.hdr_sz = static_cast<uint16_t>(frame.head.size());
    wr.tso.mss = frame.mss;
    ++wr.sg_list;
    --wr.num_sge;
  } else if (total <= inline_bytes_) {
    put_inline(frame, slot, static_cast<uint32_t>(total));
  } else if (can_lie(frame)) {
    put_in_place(frame, slot);
  } else if (!put_gathered(frame, slot, static_cast<uint32_t>(total))) {
    return false;
  }
  if (staged_ > 0) wr_[staged_ - 1].next = &wr;
  ++staged_;
  ++tx_tail_;
  if (++since_signal_ >= setup_.signal_every) {
    wr.send_flags |= IBV_SEND_SIGNALED;
    since_signal_ = 0;
    holds_unsignaled_ = false;
  }
  if (bell == Doorbell::kNow || staged_ == kBatch) tx_flush();
  return true;
}

/// Whether the head fits the slot's own bytes and the body can be sent from where it is.
bool VerbsQueue::can_lie(const TxFrame& frame) const noexcept {
  bool can = frame.head.size() <= kOwnBytes && frame.body.size() < setup_.tx_segments;
  for (const PacketSlice& s : frame.body)
    can &= s.packet->frame >= arena_.data() && s.packet->frame < arena_.data() + arena_.size();
  return can;
}

ibv_sge& VerbsQueue::add_segment(const void* at, uint32_t bytes, uint32_t lkey) noexcept {
  ibv_send_wr& wr = wr_[staged_];
  ibv_sge& s = wr.sg_list[wr.num_sge++];
  s = {reinterpret_cast<uintptr_t>(at), bytes, lkey};
  return s;
}

void VerbsQueue::hold(uint32_t slot, PacketBuf* p) noexcept {
  SendSlot& s = tx_slots_[slot];
  s.held[s.held_count++] = p;
  ++p->device_refs;
  holds_unsignaled_ = true;
}

void VerbsQueue::put_inline(const TxFrame& frame, uint32_t slot, uint32_t total) noexcept {
  std::byte* to = own_bytes(slot);
  std::memcpy(to, frame.head.data(), frame.head.size());
  to += frame.head.size();
  for (const PacketSlice& s : frame.body) {
    std::memcpy(to, s.packet->frame + s.at, s.length);
    to += s.length;
  }
  add_segment(own_bytes(slot), total, own_region_.lkey());
  wr_[staged_].send_flags |= IBV_SEND_INLINE;
}

void VerbsQueue::put_in_place(const TxFrame& frame, uint32_t slot) noexcept {
  std::memcpy(own_bytes(slot), frame.head.data(), frame.head.size());
  add_segment(own_bytes(slot), static_cast<uint32_t>(frame.head.size()), own_region_.lkey());
  for (const PacketSlice& s : frame.body) {
    add_segment(s.packet->frame + s.at, s.length, context_->arena_lkey());
    ++s.packet->refs;
    hold(slot, s.packet);
  }
}

/// Copies the frame into new pool frames. @return false: the pool has too few.
bool VerbsQueue::put_gathered(const TxFrame& frame, uint32_t slot, uint32_t total) noexcept {
  const uint32_t frame_bytes = pool_.frame_bytes();
  const uint32_t n = (total + frame_bytes - 1) / frame_bytes;
  VIREO_ASSERT(n <= setup_.tx_segments);  // else longer than the MTU in caps
  if (pool_.ready_count() < n) return false;
  PacketBuf* p = nullptr;
  uint32_t used = frame_bytes;
  const auto append = [&](const std::byte* from, size_t length) {
    while (length > 0) {
      if (used == frame_bytes) {
        p = pool_.take();
        hold(slot, p);
        add_segment(p->frame, 0, context_->arena_lkey());
        used = 0;
      }
      const auto part = static_cast<uint32_t>(std::min<size_t>(length, frame_bytes - used));
      std::memcpy(p->frame + used, from, part);
      used += part;
      from += part;
      length -= part;
      wr_[staged_].sg_list[wr_[staged_].num_sge - 1].length = used;
    }
  };
  append(frame.head.data(), frame.head.size());
  for (const PacketSlice& s : frame.body) append(s.packet->frame + s.at, s.length);
  return true;
}

void VerbsQueue::tx_flush() noexcept {
  if (staged_ == 0) return;
  if (holds_unsignaled_) {
    wr_[staged_ - 1].send_flags |= IBV_SEND_SIGNALED;
    since_signal_ = 0;
    holds_unsignaled_ = false;
  }
  ibv_send_wr* bad = nullptr;
  staged_ = 0;
  if (ibv_post_send(pair_.get(), &wr_[0], &bad) != 0) [[unlikely]] {
    ++losses_.tx_refused;
    device_.note_broken();  // the packets are returned at the restart
  }
}

void VerbsQueue::release(uint32_t slot) noexcept {
  SendSlot& s = tx_slots_[slot];
  for (uint32_t i = 0; i < s.held_count; ++i) {
    --s.held[i]->device_refs;
    PacketPool::drop(s.held[i]);
  }
  s.held_count = 0;
}

unsigned VerbsQueue::tx_reap() noexcept {
  if (!device_.is_usable() && !device_.is_gone()) [[unlikely]] {
    begin_anew();
    return 0;
  }
  ibv_wc wc[kBatch];
  unsigned reaped = 0;
  const int polled = ibv_poll_cq(pair_.sent(), static_cast<int>(kBatch), wc);
  for (int i = 0; i < polled; ++i) {
    if (wc[i].status != IBV_WC_SUCCESS) [[unlikely]] {
      ++losses_.tx_refused;
      device_.note_broken();
    } else {
      has_carried_ = true;
    }
    // A completion also completes all requests before it.
    for (; tx_head_ <= wc[i].wr_id; ++tx_head_, ++reaped)
      release(static_cast<uint32_t>(tx_head_ % setup_.tx_slots));
  }
  if (polled < 0) [[unlikely]]
    device_.note_gone();
  return reaped;
}

}  // namespace vireo::verbs
