// What the short ways of direct.h leave to be done: the books, and what is seldom met.
#include "stack/engine/direct.h"

#include "stack/tcp/held.h"
#include "stack/tcp/next.h"

namespace vireo {

[[gnu::hot]] Engine::PolledFor Engine::poll_for(TcpFlow& f, const iovec& to, Instant now) noexcept {
  polls_for_ = PollOf::kWait;
  const PolledFor polled = poll_for_here(f, to, now);
  polls_for_ = PollOf::kCall;
  return polled;
}
[[gnu::hot]] Engine::PolledFor Engine::poll_for(UdpFlow& u, const iovec& to, Instant now) noexcept {
  polls_for_ = PollOf::kWait;
  const PolledFor polled = poll_for_here(u, to, now);
  polls_for_ = PollOf::kCall;
  return polled;
}

[[gnu::hot]] bool Engine::tcp_send_lone(TcpFlow& f, const iovec& data, Instant now) noexcept {
  tcp::Tcb& t = f.tcb;
  const auto n = static_cast<uint32_t>(data.iov_len);
  // Whoever is pending owes no more than an ACK, which rides on it; who is stalled has no way.
  if (!tcp::may_send_lone(t, data.iov_len, now) || corked_ != nullptr ||
      f.egress.generation != static_cast<uint32_t>(reader_.generation()) ||
      !is_readable(data.iov_base, n)) [[unlikely]]
    return false;
  PacketBuf* const b = t.pool->take();
  const uint64_t sum = tcp::fill_lone(t, b, data.iov_base, n);
  const uint16_t window = tcp::window_field(t);
  const bool is_dear = f.egress.port->corks;
  const Doorbell bell = is_dear ? bell_of_answer(1, now) : Doorbell::kNow;
  bool is_sent = false;
  if (has_plain_header(f)) [[likely]] {
    is_sent = emit_plain(f, b, sum, window, bell, now);
    if (is_sent) [[likely]]
      count_sent(f, 1, wire::HeaderTemplate::kPlainTcp, n);
  } else {
    is_sent = emit_lone(f, b, sum, bell, now);
  }
  // Only now what it answers.
  if (owed_.flow == &f)
    settle_answered(f);
  else
    settle();
  tcp::queue_lone(t, b, sum);
  f.pending_hook.unlink();  // the ACK that it owed has left, or waits behind it
  if (!is_sent) [[unlikely]] {
    tcp_progress(f, now);  // it is queued, and waits for the ring as others do
    return true;
  }
  if (!t.queue.board().answer.is_set() && has_plain_header(f)) [[unlikely]]
    t.queue.board().answer.set({f.key.local, f.key.remote});
  tcp::sent_lone(t, window, n, now);
  if (is_dear) note_answer(bell, 1, now);
  lull_ = 0;  // what the device has read is reaped in the next turn that finds nothing
  arm_timer_by(f, t.rtx_at);
  return true;
}

[[gnu::always_inline]] inline bool Engine::may_send_next(TcpFlow& f, const iovec& data) noexcept {
  return tcp::may_send_next(f.tcb, data.iov_len) && has_plain_header(f) &&
         f.egress.generation == static_cast<uint32_t>(reader_.generation()) &&
         is_readable(data.iov_base, data.iov_len);
}

[[gnu::hot]] bool Engine::tcp_send_next(TcpFlow& f, const iovec& data, Instant now) noexcept {
  if (f.egress.port->corks) {
    if (!send_next_or_wait(f, data, now)) return false;
  } else {
    if (!may_send_next(f, data)) [[unlikely]]
      return false;
    send_next(f, data, Doorbell::kNow, now);
  }
  if (has_sent_much()) [[unlikely]]
    look_for_acks(f, now);
  return true;
}

/// Requires may_send_next(). @return false: the ring is full, it waits.
[[gnu::always_inline]] inline bool Engine::send_next(TcpFlow& f, const iovec& data, Doorbell bell,
                                                     Instant now) noexcept {
  tcp::Tcb& t = f.tcb;
  const auto n = static_cast<uint32_t>(data.iov_len);
  PacketBuf* const b = t.pool->take();
  const uint64_t sum = tcp::fill_lone(t, b, data.iov_base, n);
  const uint16_t window = tcp::window_field(t);
  const bool is_sent = emit_plain(f, b, sum, window, bell, now);
  tcp::queue_next(t, b, sum);
  f.pending_hook.unlink();
  if (!is_sent) [[unlikely]] {
    tcp_progress(f, now);
    return false;
  }
  count_sent(f, 1, wire::HeaderTemplate::kPlainTcp, n);
  tcp::sent_next(t, window, n, now);
  lull_ = 0;
  arm_timer_by(f, t.rtx_at);
  return true;
}

/// Where a doorbell is dear.
[[gnu::noinline]] bool Engine::send_next_or_wait(TcpFlow& f, const iovec& data,
                                                 Instant now) noexcept {
  if (corked_ != nullptr) {
    if (corked_ == &f) return join_corked(f, data, now);
    pass_cork(f, data.iov_len, false, now);
  }
  if (!may_send_next(f, data)) return false;
  if (may_cork(f, data.iov_len, now)) return cork(f, data, now);
  const Doorbell bell = bell_of_call(f, SendBy::kWrite, 1, now);
  if (send_next(f, data, bell, now)) note_call(f, SendBy::kWrite, bell, 1, now);
  return true;
}

[[gnu::hot]] bool Engine::tcp_hold(TcpFlow& f, const iovec& data) noexcept {
  if (f.tcb.autocork || !tcp::may_hold(f.tcb, data.iov_len) ||
      !is_readable(data.iov_base, data.iov_len))
    return false;
  tcp::append_held(f.tcb, data.iov_base, data.iov_len);
  return true;
}

[[gnu::noinline]] void Engine::expect_segment(const TcpFlow& f) noexcept {
  constexpr uint32_t kHead = 14 + 20 + 32;
  f.egress.port->queue().expect_frame(kHead + f.tcb.mss);
}

/// A lone segment over IPv6, with a tag or without timestamps. @return false: the ring is full.
bool Engine::emit_lone(TcpFlow& f, PacketBuf* b, uint64_t sum, Doorbell bell,
                       Instant now) noexcept {
  tcp::Plan plan;
  b->sum = checksum::fold(sum);
  tcp::plan_lone(f.tcb, b, now, plan);
  return emit(f, plan, bell);
}

/// Is it one, whose headers are not those of the one before?
bool Engine::begins_row(UdpFlow& u, const std::byte* frame) noexcept {
  return u.expected.accept(frame);
}

/// All else of a turn whose one frame was taken.
bool Engine::finish_to_return(Instant now) noexcept {
  settle();
  poll_of_ = polls_for_;
  ring_if_due(now);
  const bool is_worked = full_turn(now, 1);
  poll_of_ = PollOf::kNobody;
  return is_worked;
}

/// Of an answer that `f` has answered.
void Engine::settle_answered(TcpFlow& f) noexcept {
  owed_.flow = nullptr;
  const tcp::LoneAnswer& a = owed_.answer;
  stats_.rx_packets.add();
  stats_.rx_bytes.add(a.bytes + wire::HeaderTemplate::kPlainTcp);
  f.stats->rx_packets.add();
  f.stats->rx_bytes.add(a.bytes);
  tcp::book_answer(f.tcb, a);
}

/// Of one that is not answered yet.
void Engine::settle_owed() noexcept {
  TcpFlow& f = *owed_.flow;
  settle_answered(f);
  tcp::schedule_ack(f.tcb, owed_.answer.at);
  if (f.tcb.acks_due != 0) [[unlikely]]
    want_transmit(f);
  arm_timer_by(f, f.tcb.delack_at);
}

}  // namespace vireo
