// What the short ways of direct.h leave to be done, and the short ways of sending.
#include "stack/engine/direct.h"
#include "core/user_memory.h"
#include "stack/tcp/held.h"
#include "stack/tcp/next.h"

namespace vireo {

[[gnu::hot]] Engine::PolledFor Engine::poll_for(TcpFlow& f, const iovec& to, Instant now) noexcept {
  return poll_for_here(f, to, now, PollOf::kWait);
}
[[gnu::hot]] Engine::PolledFor Engine::poll_for(UdpFlow& u, const iovec& to, Instant now) noexcept {
  return poll_for_here(u, to, now, PollOf::kWait);
}

bool direct::begins_row(UdpFlow& u, const std::byte* frame) noexcept {
  return u.expected.accept(frame);
}

[[gnu::hot]] bool TcpFlows::send_lone(TcpFlow& f, const iovec& data, Instant now) noexcept {
  tcp::Tcb& t = f.tcb;
  const auto n = static_cast<uint32_t>(data.iov_len);
  // Whoever is pending owes no more than an ACK, which rides on it; who is stalled has no way.
  if (!tcp::may_send_lone(t, data.iov_len, now) || hub().doorbells.corked() != nullptr ||
      !hub().is_current(f.egress) || !is_readable(data.iov_base, n)) [[unlikely]]
    return false;
  PacketBuf* const b = t.pool->take();
  const uint64_t sum = tcp::fill_lone(t, b, data.iov_base, n);
  const uint16_t window = tcp::window_field(t);
  const bool is_dear = f.egress.port->corks;
  const Doorbell bell = is_dear ? hub().doorbells.bell_of_answer(1, now) : Doorbell::kNow;
  bool is_sent = false;
  if (has_plain_header(f)) [[likely]] {
    is_sent = emit_plain(f, b, sum, window, bell, now);
    if (is_sent) [[likely]]
      hub().output.count_sent(f, 1, wire::HeaderTemplate::kPlainTcp, n);
  } else {
    is_sent = emit_lone(f, b, sum, bell, now);
  }
  // Only now what it answers.
  if (hub().deferred.is_left_of(f))
    hub().deferred.finish_answered(f);
  else
    hub().deferred.finish_if_left();
  tcp::queue_lone(t, b, sum);
  f.pending_hook.unlink();  // the ACK that it owed has left, or waits behind it
  if (!is_sent) [[unlikely]] {
    progress(f, now);  // it is queued, and waits for the ring as others do
    return true;
  }
  if (!t.queue.board().answer.is_set() && has_plain_header(f)) [[unlikely]]
    t.queue.board().answer.set({f.key.local, f.key.remote});
  tcp::sent_lone(t, window, n, now);
  if (is_dear) hub().doorbells.note_answer(bell, 1, now);
  hub()
      .turn.end_idling();  // what the device has read is reaped in the next turn that finds nothing
  hub().timers.arm_by(f, t.rtx_at);
  return true;
}

[[gnu::always_inline]] inline bool TcpFlows::may_send_next(TcpFlow& f, const iovec& data) noexcept {
  return tcp::may_send_next(f.tcb, data.iov_len) && has_plain_header(f) &&
         hub().is_current(f.egress) && is_readable(data.iov_base, data.iov_len);
}

[[gnu::hot]] bool TcpFlows::send_next(TcpFlow& f, const iovec& data, Instant now) noexcept {
  if (f.egress.port->corks) {
    if (!send_next_or_wait(f, data, now)) return false;
  } else {
    if (!may_send_next(f, data)) [[unlikely]]
      return false;
    emit_next(f, data, Doorbell::kNow, now);
  }
  if (has_sent_much()) [[unlikely]]
    look_for_acks(f, now);
  return true;
}

/// Requires may_send_next(). @return false: the ring is full, it waits.
[[gnu::always_inline]] inline bool TcpFlows::emit_next(TcpFlow& f, const iovec& data, Doorbell bell,
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
    progress(f, now);
    return false;
  }
  hub().output.count_sent(f, 1, wire::HeaderTemplate::kPlainTcp, n);
  tcp::sent_next(t, window, n, now);
  hub().turn.end_idling();
  hub().timers.arm_by(f, t.rtx_at);
  return true;
}

/// Where a doorbell is dear.
[[gnu::noinline]] bool TcpFlows::send_next_or_wait(TcpFlow& f, const iovec& data,
                                                   Instant now) noexcept {
  if (hub().doorbells.corked() != nullptr) {
    if (hub().doorbells.corked() == &f) return hub().doorbells.join_corked(f, data, now);
    hub().doorbells.pass_cork(f, data.iov_len, false, now);
  }
  if (!may_send_next(f, data)) return false;
  if (hub().doorbells.may_cork(f, data.iov_len, now)) return hub().doorbells.cork(f, data, now);
  const Doorbell bell = hub().doorbells.bell_of_call(f, SendBy::kWrite, 1, now);
  if (emit_next(f, data, bell, now)) hub().doorbells.note_call(f, SendBy::kWrite, bell, 1, now);
  return true;
}

[[gnu::hot]] bool TcpFlows::hold(TcpFlow& f, const iovec& data) noexcept {
  if (f.tcb.autocork || !tcp::may_hold(f.tcb, data.iov_len) ||
      !is_readable(data.iov_base, data.iov_len))
    return false;
  tcp::append_held(f.tcb, data.iov_base, data.iov_len);
  return true;
}

[[gnu::noinline]] void TcpFlows::expect_segment(const TcpFlow& f) noexcept {
  constexpr uint32_t kHead = 14 + 20 + 32;
  f.egress.port->queue().expect_frame(kHead + f.tcb.mss);
}

/// A lone segment over IPv6, with a tag or without timestamps. @return false: the ring is full.
bool TcpFlows::emit_lone(TcpFlow& f, PacketBuf* b, uint64_t sum, Doorbell bell,
                         Instant now) noexcept {
  tcp::Plan plan;
  b->sum = checksum::fold(sum);
  tcp::plan_lone(f.tcb, b, now, plan);
  return hub().output.emit(f, plan, bell);
}

}  // namespace vireo
