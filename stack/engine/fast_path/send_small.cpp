// Small writes: the only segment in flight, one behind others with TCP_NODELAY, or an addition to
// the segment that Nagle's algorithm holds. A write that fits none of them takes the full path
// (stack/engine/tcp_send.cpp), and nothing here has changed.
#include "core/user_memory.h"
#include "stack/engine/fast_path/send_plain.h"
#include "stack/tcp/fast_path/nagle.h"
#include "stack/tcp/fast_path/nodelay_segment.h"

namespace vireo {

[[gnu::hot]] bool TcpFlows::send_single(TcpFlow& f, const iovec& data, Instant now) noexcept {
  tcp::Tcb& t = f.tcb;
  const auto n = static_cast<uint32_t>(data.iov_len);
  // A pending flow has only an ACK to send, which this segment carries; a stalled flow has no
  // current egress.
  if (!tcp::may_send_single(t, data.iov_len, now) || hub().doorbells.corked() != nullptr ||
      !hub().is_current(f.egress) || !is_readable(data.iov_base, n)) [[unlikely]]
    return false;
  PacketBuf* const b = t.pool->take();
  const uint64_t sum = tcp::fill_segment(t, b, data.iov_base, n);
  const uint16_t window = tcp::window_field(t);
  const bool is_dear = f.egress.port->corks;
  const Doorbell bell = is_dear ? hub().doorbells.bell_of_answer(1, now) : Doorbell::kNow;
  bool is_sent = false;
  if (has_plain_header(f)) [[likely]] {
    is_sent = emit_plain(f, b, sum, window, bell, now);
    if (is_sent) [[likely]]
      hub().output.count_sent(f, 1, wire::HeaderTemplate::kPlainTcp, n);
  } else {
    is_sent = emit_single(f, b, sum, bell, now);
  }
  // Only now the accounting of the answer that this segment replies to.
  if (hub().deferred.is_left_of(f))
    hub().deferred.finish_answered(f);
  else
    hub().deferred.finish_if_left();
  tcp::queue_single(t, b, sum);
  f.pending_hook.unlink();  // its ACK has left, or waits behind this segment
  if (!is_sent) [[unlikely]] {
    progress(f, now);  // it is queued, and waits for the ring like others
    return true;
  }
  if (!t.queue.board().answer.is_set() && has_plain_header(f)) [[unlikely]]
    tcp::know_answers_path(t, {f.key.local, f.key.remote});
  tcp::sent_single(t, window, n, now);
  if (is_dear) hub().doorbells.note_answer(bell, 1, now);
  hub()
      .turn.end_idling();  // what the device has read is reaped in the next turn that finds nothing
  hub().timers.arm_by(f, t.rtx_at);
  return true;
}

[[gnu::always_inline]] inline bool TcpFlows::may_send_nodelay(TcpFlow& f,
                                                              const iovec& data) noexcept {
  return tcp::may_send_nodelay(f.tcb, data.iov_len) && has_plain_header(f) &&
         hub().is_current(f.egress) && is_readable(data.iov_base, data.iov_len);
}

[[gnu::hot]] bool TcpFlows::send_nodelay(TcpFlow& f, const iovec& data, Instant now) noexcept {
  if (f.egress.port->corks) {
    if (!send_nodelay_or_wait(f, data, now)) return false;
  } else {
    if (!may_send_nodelay(f, data)) [[unlikely]]
      return false;
    emit_nodelay(f, data, Doorbell::kNow, now);
  }
  if (has_sent_much()) [[unlikely]]
    look_for_acks(f, now);
  return true;
}

/// Requires may_send_nodelay(). @return false: the ring is full, the segment waits.
[[gnu::always_inline]] inline bool TcpFlows::emit_nodelay(TcpFlow& f, const iovec& data,
                                                          Doorbell bell, Instant now) noexcept {
  tcp::Tcb& t = f.tcb;
  const auto n = static_cast<uint32_t>(data.iov_len);
  PacketBuf* const b = t.pool->take();
  const uint64_t sum = tcp::fill_segment(t, b, data.iov_base, n);
  const uint16_t window = tcp::window_field(t);
  const bool is_sent = emit_plain(f, b, sum, window, bell, now);
  tcp::queue_nodelay(t, b, sum);
  f.pending_hook.unlink();
  if (!is_sent) [[unlikely]] {
    progress(f, now);
    return false;
  }
  hub().output.count_sent(f, 1, wire::HeaderTemplate::kPlainTcp, n);
  tcp::sent_nodelay(t, window, n, now);
  hub().turn.end_idling();
  hub().timers.arm_by(f, t.rtx_at);
  return true;
}

/// For a port where a doorbell is expensive.
[[gnu::noinline]] bool TcpFlows::send_nodelay_or_wait(TcpFlow& f, const iovec& data,
                                                      Instant now) noexcept {
  if (hub().doorbells.corked() != nullptr) {
    if (hub().doorbells.corked() == &f) return hub().doorbells.join_corked(f, data, now);
    hub().doorbells.pass_cork(f, data.iov_len, false, now);
  }
  if (!may_send_nodelay(f, data)) return false;
  if (hub().doorbells.may_cork(f, data.iov_len, now)) return hub().doorbells.cork(f, data, now);
  const Doorbell bell = hub().doorbells.bell_of_call(f, SendBy::kWrite, 1, now);
  if (emit_nodelay(f, data, bell, now)) hub().doorbells.note_call(f, SendBy::kWrite, bell, 1, now);
  return true;
}

[[gnu::hot]] bool TcpFlows::append_nagled(TcpFlow& f, const iovec& data) noexcept {
  if (f.tcb.autocork || !tcp::may_append_nagled(f.tcb, data.iov_len) ||
      !is_readable(data.iov_base, data.iov_len))
    return false;
  tcp::append_nagled(f.tcb, data.iov_base, data.iov_len);
  return true;
}

[[gnu::noinline]] void TcpFlows::expect_segment(const TcpFlow& f) noexcept {
  constexpr uint32_t kHead = 14 + 20 + 32;
  f.egress.port->queue().expect_frame(kHead + f.tcb.mss);
}

/// A single segment over IPv6, with a VLAN tag or without timestamps. @return false: the ring is
/// full.
bool TcpFlows::emit_single(TcpFlow& f, PacketBuf* b, uint64_t sum, Doorbell bell,
                           Instant now) noexcept {
  tcp::Plan plan;
  b->sum = checksum::fold(sum);
  tcp::plan_single(f.tcb, b, now, plan);
  return hub().output.emit(f, plan, bell);
}

}  // namespace vireo
