// Ends a connection: by FIN, RST or time.
#include <algorithm>
#include <cerrno>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

namespace {

void stop_timers(Tcb& t) {
  t.rtx_timer = RtxTimer::kNone;
  t.rtx_at = t.rto_at = t.delack_at = t.life_at = Instant::never();
}

void drop_work(Tcb& t) {
  stop_timers(t);
  t.queue.clear();
  t.reassembly.reset();
  t.syn_due = t.probe_due = t.keep_due = t.rtx_force = t.ack_bare = t.dsack = false;
  t.suspects = t.tlp_due = t.tlp_out = t.new_first = false;
  t.acks_due = 0;
  t.sacked_out = t.lost_out = t.retrans_out = t.rtx_due = 0;
  t.predictable = t.terse = false;
  forget_single(t);
}

}  // namespace

Effects finish(Tcb& t, int error) {
  drop_work(t);
  t.reset_due = t.reset_reply = false;
  t.state = State::kClosed;
  if (error == 0) return Effects::kClosed;
  t.error = static_cast<uint8_t>(error);
  return Effects::kClosed | Effects::kError;
}

Effects reset(Tcb& t, int error) {
  drop_work(t);
  t.reset_due = true;
  if (error == 0) return Effects::kTransmit;
  t.error = static_cast<uint8_t>(error);
  return Effects::kError | Effects::kTransmit;
}

void release(Tcb& t) {
  t.queue.clear();
  t.reassembly.reset();
  t.recv_queue.clear();
  t.~Tcb();
  new (&t) Tcb;
}

void enter_time_wait(Tcb& t, Instant now) {
  t.state = State::kTimeWait;
  t.queue.clear();
  t.rtx_timer = RtxTimer::kNone;
  t.rtx_at = t.rto_at = Instant::never();
  t.life_at = now + kTimeWaitLength;
}

void shutdown_write(Tcb& t, Instant now) {
  if (t.fin_queued || t.reset_due) return;
  if (t.state == State::kSynSent) {
    finish(t, 0);
    return;
  }
  switch (t.state) {
    case State::kSynReceived:  // becomes FIN_WAIT_1 when established
      break;
    case State::kEstablished:
      t.state = State::kFinWait1;
      break;
    case State::kCloseWait:
      t.state = State::kLastAck;
      break;
    default:
      return;
  }
  if (!t.queue.push_back(t.snd_end, nullptr)) {  // out of memory: reset instead
    reset(t, 0);
    return;
  }
  t.fin_queued = true;
  if (t.state == State::kSynReceived) return;
  t.more = false;
  sync_timer(t, now);
  refresh_prediction(t);
}

void close(Tcb& t, Instant now) {
  if (t.orphan || t.reset_due) return;
  const bool unread = !t.recv_queue.empty();
  t.recv_queue.clear();
  t.orphan = true;
  if (t.state == State::kClosed || t.state == State::kTimeWait) return;
  if (unread) {
    if (t.state == State::kClosing || t.state == State::kLastAck) {
      finish(t, 0);
      return;
    }
    reset(t, 0);
    return;
  }
  t.reassembly.reset();
  t.life_at = Instant::never();
  if (t.state == State::kFinWait2) {
    if (t.config->fin_timeout < Duration{}) {  // as Linux: no FIN_WAIT_2 without an owner
      reset(t, 0);
      return;
    }
    t.life_at = now + t.config->fin_timeout;
  }
  shutdown_write(t, now);
  refresh_prediction(t);
}

void abort(Tcb& t, Instant) {
  t.recv_queue.clear();
  switch (t.state) {
    case State::kSynReceived:
    case State::kEstablished:
    case State::kFinWait1:
    case State::kFinWait2:
    case State::kCloseWait:
      reset(t, 0);
      return;
    default:
      finish(t, 0);
      return;
  }
}

Effects fail(Tcb& t, int error) { return finish(t, error); }
Effects evict(Tcb& t, int error) { return reset(t, error); }

bool is_in_flight(const Tcb& t, Seq32 quoted) {
  return quoted.in_window(t.snd_seq(t.snd_una), static_cast<uint32_t>(t.snd_max - t.snd_una));
}

Effects icmp_error(Tcb& t, Seq32 quoted, int error, bool hard, Instant) {
  (void)hard;  // RFC 5927 §5.2: in a synchronized state every ICMP error is soft, as on Linux
  if (t.state == State::kClosed || t.state == State::kTimeWait || t.reset_due)
    return Effects::kNone;
  const uint64_t sent = t.snd_max - t.snd_una;
  if (!quoted.in_window(t.snd_seq(t.snd_una), static_cast<uint32_t>(sent))) return Effects::kNone;
  if (t.state == State::kSynSent || t.state == State::kSynReceived) return finish(t, error);
  t.soft_error = static_cast<uint8_t>(error);
  return Effects::kNone;
}

}  // namespace vireo::tcp
