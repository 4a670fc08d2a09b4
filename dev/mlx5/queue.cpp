#include "dev/mlx5/queue.h"

#include <algorithm>
#include <cerrno>

#include "core/log.h"
#include "dev/verbs/late_libibverbs.h"

namespace vireo::mlx5 {

Mlx5Queue::Mlx5Queue(verbs::VerbsDevice& device, const std::shared_ptr<verbs::Context>& context,
                     verbs::Pair pair, const Rings& rings, std::span<std::byte> arena,
                     PacketPool& pool, const verbs::QueueShape& shape, uint32_t inline_bytes,
                     const std::optional<verbs::StampClock>& clock,
                     std::unique_ptr<Striding> striding, std::unique_ptr<LroRules> lro)
    : device_(device),
      context_(context),
      arena_(arena),
      pool_(pool),
      shape_(shape),
      arena_lkey_(context->arena_lkey()),
      inline_lengths_(inline_bytes < Sq::kMinInline ? 0 : inline_bytes - Sq::kMinInline + 1),
      rx_room_(pool.frame_bytes() - PacketPool::kHeadroom),
      checksums_(shape.checksums ? MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM : 0),
      received_(rings.received),
      rq_(rings.pair, shape.rx_segments, rx_room_, arena_lkey_),
      rx_(rq_.size(), shape.rx_segments),
      is_plain_(shape.rx_segments == 1 && striding == nullptr),
      fill_(striding != nullptr ? striding->most_strides() : shape.rx_slots,
            striding != nullptr ? striding->runs.frames() : 1),
      clock_(clock),
      sq_(rings.pair, pair.get()->qp_num),
      sent_(rings.sent),
      in_flight_(shape.tx_slots, verbs::QueueShape::kMaxSegments),
      until_signal_(shape.signal_every),
      pair_(std::move(pair)),
      striding_(std::move(striding)),
      lro_(std::move(lro)) {
  rx_refill();
}

Mlx5Queue::~Mlx5Queue() {
  device_.close(*this);
  if (context_->is_ours()) {
    wake_ack();
    // Until then the device may still access the memory that is freed next.
    (void)pair_.reset();
    if (striding_ != nullptr) (void)striding_->wq.reset();
  }
  in_flight_.release_all();
  drop_receives();
}

/// The QP is in the error state: empties all rings and restarts it, or gives up the device.
void Mlx5Queue::begin_anew() noexcept {
  const bool carried = rx_.taken != 0 || in_flight_.has_freed();
  if (!device_.may_begin_anew(carried)) return;
  if (!pair_.reset() || (striding_ != nullptr && !striding_->wq.reset()))
    return device_.note_gone();
  // CQEs of forgotten requests. libmlx5, which assumes that it owns the queues, may have written
  // the doorbell records when it reset the QP; release() corrects them.
  received_.skip_all();
  sent_.skip_all();
  session_ = {};
  drop_receives();
  rx_.posted = rx_.taken = 0;
  losses_.tx_refused += in_flight_.begin_anew();
  until_signal_ = shape_.signal_every;
  credit_ = unrung_ = 0;
  sq_.begin_anew();
  if (!pair_.make_ready() || (striding_ != nullptr && !striding_->wq.make_ready()))
    return device_.note_gone();
  device_.note_begun();
  if (losses_.restarts++ == 0)
    log<LogLevel::kWarn>("RDMA: a queue pair failed and began anew; vireo-stat counts them");
  rx_refill();
}

void Mlx5Queue::drop_receives() noexcept {
  while (striding_ != nullptr && rx_.taken != rx_.posted) give_back_element();
  for (; rx_.taken != rx_.posted; ++rx_.taken)
    for (uint32_t i = 0; i < shape_.rx_segments; ++i) PacketPool::drop(rx_.frames_of(rx_.taken)[i]);
}

bool Mlx5Queue::alive() noexcept {
  if (device_.is_there() && !device_.is_usable()) begin_anew();
  return !device_.is_gone();
}

// ---- receiving ----------------------------------------------------------------------------------

void Mlx5Queue::rx_refill() noexcept {
  if (striding_ != nullptr) [[unlikely]]
    return post_runs();
  const uint32_t target = fill_.target(rx_.count());
  if (rx_.count() < target) post_frames(target);
}

/// Separate, so that a refill with nothing to do needs no stack frame.
[[gnu::noinline]] void Mlx5Queue::post_frames(uint32_t target) noexcept {
  while (rx_.count() < target && device_.is_usable()) {
    const uint32_t most = std::min(shape_.refill, target - rx_.count());
    const uint32_t n = std::min(most, pool_.rx_count() / shape_.rx_segments);
    for (uint32_t k = 0; k < n; ++k, ++rx_.posted) {
      PacketBuf** const frames = rx_.frames_of(rx_.posted);
      uint32_t i = 0;
      do {
        PacketBuf* const p = pool_.take();
        frames[i] = p;
        rq_.write(rx_.posted, i, p->frame + PacketPool::kHeadroom);
      } while (++i < shape_.rx_segments);
    }
    if (n > 0) rq_.publish(rx_.posted);
    if (n < most) {
      if (rx_.posted == rx_.taken) ++losses_.rx_starved;
      return;
    }
  }
}

unsigned Mlx5Queue::rx_burst(std::span<RxDesc> out) noexcept {
  if (!is_plain_) [[unlikely]]
    return receive_oddly(out);
  return receive<true>(out);
}

unsigned Mlx5Queue::receive_oddly(std::span<RxDesc> out) noexcept {
  if (striding_ == nullptr) return receive<false>(out);
  return received_.has_front() ? receive_strides(out) : 0;
}

template <bool kPlain>
inline unsigned Mlx5Queue::receive(std::span<RxDesc> out) noexcept {
  unsigned n = 0;
  const uint32_t before = received_.consumed();
  if (session_.count != 0) [[unlikely]]
    n = deliver_session(out);
  RxDesc* const end = out.data() + out.size();
  while (n < out.size()) {
    const mlx5_cqe64& cqe = *received_.front();
    const uint8_t op_own = Cq::look(&cqe);
    if (op_own == received_.expected(Cq::kReceived)) [[likely]] {
      const FlowTag tag = tag_of(cqe);
      const Delivered d{be32toh(cqe.byte_cnt), with_tag(flags_of(cqe.hds_ip_ext), tag), tag, &cqe};
      const unsigned used = deliver<kPlain>(d, out.data() + n, end);
      if (used == 0) break;
      received_.pop();
      n += used;
    } else if (!received_.is_ours(op_own)) {
      break;
    } else {
      if (!take_rare(cqe, op_own)) break;
      n += deliver_session(out.subspan(n));
      if (session_.count != 0) break;
    }
  }
  if (received_.consumed() != before) received_.release();
  return n;
}

/// Delivers the frames of the oldest request. @return descriptors written; 0: `out` has too few.
template <bool kPlain>
inline unsigned Mlx5Queue::deliver(Delivered d, RxDesc* out, RxDesc* end) noexcept {
  if (!kPlain) return deliver_parts(d, out, end);
  PacketBuf* const p = rx_.frames[rx_.taken++ & rx_.mask];
  p->length = static_cast<uint16_t>(d.bytes);
  __builtin_prefetch(p->data());
  out[0].packet.reset(p);
  out[0].flags = d.flags;
  out[0].tag = d.tag;
  return 1;
}

/// Like deliver(), for requests of several frames, or with timestamps.
unsigned Mlx5Queue::deliver_parts(Delivered d, RxDesc* out, RxDesc* end) noexcept {
  const uint32_t used = std::max(1U, (d.bytes + rx_room_ - 1) / rx_room_);
  if (used > static_cast<size_t>(end - out)) return 0;
  PacketBuf** const frames = rx_.frames_of(rx_.taken++);
  if (stamps_ && d.whole != nullptr)
    frames[0]->hw_time = clock_->ns(be64toh(d.whole->timestamp), Clock::now());
  for (uint32_t i = 0; i < shape_.rx_segments; ++i) {
    PacketBuf* p = frames[i];
    if (i >= used) {
      PacketPool::drop(p);
      continue;
    }
    p->length = static_cast<uint16_t>(std::min(rx_room_, d.bytes - i * rx_room_));
    __builtin_prefetch(p->data());
    out[i] = {PacketRef(p), i + 1 < used ? d.flags | RxFlags::kMore : d.flags, d.tag};
  }
  return used;
}

bool Mlx5Queue::take_rare(const mlx5_cqe64& cqe, uint8_t op_own) noexcept {
  if (op_own >> 4 == MLX5_CQE_RESP_SEND && (op_own >> 2 & 3) == Cq::kCompressed) {
    const FlowTag tag = tag_of(cqe);
    session_ = {received_.consumed(), be32toh(cqe.byte_cnt), 0,
                with_tag(flags_of(cqe.hds_ip_ext), tag), tag};
    return true;
  }
  // A request completed with an error, and so will all that are posted: the QP is in the error
  // state, whatever the first cause.
  const auto& error = reinterpret_cast<const mlx5_err_cqe&>(cqe);
  if (error.syndrome != MLX5_CQE_SYNDROME_WR_FLUSH_ERR) ++losses_.rx_refused;
  device_.note_broken();
  if (!device_.is_gone()) begin_anew();
  if (!device_.is_gone() || !received_.has_front()) return false;
  if (rx_.taken == rx_.posted) {
    // Its frame was dropped already.
  } else if (striding_ != nullptr) {
    give_back_element();
  } else {
    for (uint32_t i = 0; i < shape_.rx_segments; ++i) PacketPool::drop(rx_.frames_of(rx_.taken)[i]);
    ++rx_.taken;
  }
  received_.pop();
  return true;
}

/// Delivers the rest of a compressed session, if there is one.
unsigned Mlx5Queue::deliver_session(std::span<RxDesc> out) noexcept {
  unsigned n = 0;
  for (; session_.next < session_.count && n < out.size(); ++session_.next) {
    const uint32_t i = session_.next;
    // The first array is right behind the title CQE, the others are eight CQEs apart.
    const mlx5_cqe64* array = received_.at(session_.title + (i < 8 ? 1 : i & ~7U));
    const auto& mini = reinterpret_cast<const MiniCqe*>(array)[i & 7];
    const Delivered d{be32toh(mini.byte_cnt), session_.flags, session_.tag, nullptr};
    RxDesc* const end = out.data() + out.size();
    const unsigned used =
        is_plain_ ? deliver<true>(d, &out[n], end) : deliver<false>(d, &out[n], end);
    if (used == 0) return n;
    n += used;
  }
  if (session_.next == session_.count) {
    received_.pop_session(session_.count);
    session_ = {};
  }
  return n;
}

Result<bool> Mlx5Queue::arm() noexcept {
  if (device_.is_gone()) return fail(ENODEV, "RDMA queue");
  if (!device_.is_usable()) return false;
  wake_ack();  // an old event would end the sleep at once
  received_.arm();
  ever_armed_ = true;
  // Completions before the request cause no event, so check once more. The request is made even if
  // frames are left, because other threads may sleep on this queue.
  return session_.count == 0 && !received_.has_front();
}

void Mlx5Queue::wake_ack() noexcept {
  if (!ever_armed_) return;
  ibv_cq* cq;
  void* cookie;
  while (verbs::library().get_cq_event(pair_.channel(), &cq, &cookie) == 0) {
    received_.count_event();
    verbs::library().ack_cq_events(cq, 1);
  }
}

// ---- sending ------------------------------------------------------------------------------------

/// Accounting for a finished WQE.
inline void Mlx5Queue::note_put(bool is_whole) noexcept {
  in_flight_.add_frame();
  ++unrung_;
  --credit_;
  last_is_whole_ = is_whole;
  if (--until_signal_ == 0) [[unlikely]]
    signal();
}

void Mlx5Queue::signal() noexcept {
  sq_.signal_last();
  in_flight_.mark(sq_.produced());
  until_signal_ = shape_.signal_every;
}

/// Whether the head can be inline and the body sent from where it is.
inline bool Mlx5Queue::can_lie(const TxFrame& frame) const noexcept {
  constexpr size_t kMaxHead = 256;
  bool can = frame.head.size() >= Sq::kMinInline && frame.head.size() <= kMaxHead &&
             frame.body.size() < shape_.tx_segments;
  for (const PacketSlice& s : frame.body)
    can &= static_cast<size_t>(s.packet->frame - arena_.data()) < arena_.size();
  return can;
}

inline void Mlx5Queue::put_pointers(const TxFrame& frame) noexcept {
  const auto head = static_cast<uint32_t>(frame.head.size());
  const uint32_t before = (Sq::kInlineAt + head + Sq::kOctoword - 1) / Sq::kOctoword;
  std::byte* const wqe = sq_.claim(before + static_cast<uint32_t>(frame.body.size()));
  Sq::copy_inline(wqe, frame.head, {});
  uint32_t octowords = before;
  for (const PacketSlice& s : frame.body) {
    if (s.length == 0) continue;  // length 0 would mean 2 GiB
    Sq::write_pointer(wqe, octowords++, s, arena_lkey_);
    ++s.packet->refs;
    in_flight_.hold(s.packet);
  }
  sq_.finish(wqe, frame.mss > 0 ? MLX5_OPCODE_TSO : MLX5_OPCODE_SEND, octowords, checksums_,
             frame.mss, head);
  note_put(false);
}

bool Mlx5Queue::tx(const TxFrame& frame, Doorbell bell) noexcept {
  if (credit_ == 0 && !find_credit()) [[unlikely]] {
    tx_flush();
    return false;
  }
  auto total = static_cast<uint32_t>(frame.head.size());
  for (const PacketSlice& s : frame.body) total += s.length;
  // One comparison checks both bounds: shorter lengths wrap around.
  if (total - Sq::kMinInline < inline_lengths_ && frame.mss == 0) {
    put_inline(frame, total);
  } else if (can_lie(frame)) {
    put_pointers(frame);
  } else {
    VIREO_ASSERT(frame.mss == 0);  // the caller respects caps(): TCP header, slices of the arena
    if (!put_gathered(frame, total)) return false;
  }
  if (bell == Doorbell::kNow) tx_flush();
  return true;
}

/// Recomputes how many frames can be taken.
bool Mlx5Queue::find_credit() noexcept {
  if (!device_.is_usable()) return false;
  credit_ = std::min({shape_.tx_slots - in_flight_.frames(), sq_.room(in_flight_.freed_blocks()),
                      in_flight_.room() / verbs::QueueShape::kMaxSegments});
  return credit_ > 0;
}

inline void Mlx5Queue::put_inline(const TxFrame& frame, uint32_t total) noexcept {
  const uint32_t octowords = (Sq::kInlineAt + total + Sq::kOctoword - 1) / Sq::kOctoword;
  std::byte* const wqe = sq_.claim(octowords);
  Sq::copy_inline(wqe, frame.head, frame.body);
  sq_.finish(wqe, MLX5_OPCODE_SEND, octowords, checksums_, 0, total);
  note_put(true);
}

/// Copies the frame into new pool frames, after the bytes that must be inline. @return false: the
/// pool has too few.
bool Mlx5Queue::put_gathered(const TxFrame& frame, uint32_t total) noexcept {
  const uint32_t frame_bytes = pool_.frame_bytes(), rest = total - std::min(total, Sq::kMinInline);
  const uint32_t n = (rest + frame_bytes - 1) / frame_bytes;
  VIREO_ASSERT(n < shape_.tx_segments);  // else longer than the MTU in caps
  if (pool_.ready_count() < n) return false;
  constexpr uint32_t kBefore = (Sq::kInlineAt + Sq::kMinInline) / Sq::kOctoword;
  static_assert((Sq::kInlineAt + Sq::kMinInline) % Sq::kOctoword == 0);
  std::byte* const wqe = sq_.claim(kBefore + n);
  auto* seg = reinterpret_cast<mlx5_wqe_data_seg*>(wqe + kBefore * Sq::kOctoword);
  std::byte* to = wqe + Sq::kInlineAt;
  std::memset(to, 0, Sq::kMinInline);  // the link pads short frames anyway
  uint32_t room = Sq::kMinInline, left = rest;
  const auto append = [&](const std::byte* from, size_t length) {
    while (length > 0) {
      if (room == 0) {
        PacketBuf* p = pool_.take();
        in_flight_.hold(p);
        to = p->frame;
        room = std::min(frame_bytes, left);
        left -= room;
        mlx5dv_set_data_seg(seg++, room, arena_lkey_, reinterpret_cast<uintptr_t>(to));
      }
      const auto part = static_cast<uint32_t>(std::min<size_t>(length, room));
      std::memcpy(to, from, part);
      to += part;
      from += part;
      room -= part;
      length -= part;
    }
  };
  append(frame.head.data(), frame.head.size());
  for (const PacketSlice& s : frame.body) append(s.packet->frame + s.at, s.length);
  sq_.finish(wqe, MLX5_OPCODE_SEND, kBefore + n, checksums_, 0, Sq::kMinInline);
  note_put(false);
  return true;
}

void Mlx5Queue::tx_flush() noexcept {
  if (unrung_ == 0) return;
  // Packets the program freed must not wait for a send that may never come.
  if (in_flight_.has_unmarked()) signal();
  sq_.ring(last_is_whole_ && unrung_ == 1);
  unrung_ = 0;
}

unsigned Mlx5Queue::tx_reap() noexcept {
  uint8_t op_own = Cq::look(sent_.front());
  if (op_own != sent_.expected(Cq::kSent)) {
    if (sent_.is_ours(op_own)) [[unlikely]]
      take_send_errors();
    return 0;
  }
  const uint32_t before = in_flight_.freed_frames();
  do {
    in_flight_.free_marked();
    sent_.pop();
    op_own = Cq::look(sent_.front());
  } while (op_own == sent_.expected(Cq::kSent));
  sent_.release();
  return in_flight_.freed_frames() - before;
}

/// Handles WQEs that failed, each with its own CQE. The QP reads nothing more.
void Mlx5Queue::take_send_errors() noexcept {
  if (device_.is_usable()) {
    // The CQEs stay, so that this is called again: frames received meanwhile are taken first.
    device_.note_broken();
    credit_ = 0;
    return;
  }
  if (!device_.is_gone()) begin_anew();
  if (!device_.is_gone()) return;
  for (; sent_.has_front(); sent_.pop()) ++losses_.tx_refused;
  sent_.release();
  in_flight_.release_all();
}

}  // namespace vireo::mlx5
