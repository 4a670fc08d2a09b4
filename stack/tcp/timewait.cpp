// Answers segments for a connection in TIME-WAIT whose Tcb is released, and segments that match no
// connection.
#include "stack/tcp/tcb.h"
#include "stack/tcp/window.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

namespace {

void time_wait_ack(const TimeWait& w, Instant now, Plan& reply) {
  reply = Plan{};
  reply.seq = w.snd_nxt;
  reply.ack = w.rcv_nxt;
  reply.window = w.window;
  reply.flags = SegFlags::kAck;
  if (!w.timestamps) return;
  wire::TcpOptionWriter options(reply.options);
  options.timestamps(timestamp_clock(now, w.ts_offset), w.ts_recent);
  reply.options_length = options.size();
}

}  // namespace

TimeWait make_time_wait(const Tcb& t) {
  TimeWait w;
  w.snd_nxt = t.snd_seq(t.snd_nxt);
  w.rcv_nxt = t.rcv_seq(t.rcv_nxt);
  w.ts_recent = t.ts_recent;
  w.ts_offset = t.ts_offset;
  w.window = window_field(t);
  w.timestamps = t.ts_on;
  return w;
}

TimeWaitVerdict time_wait_input(TimeWait& w, const Segment& s, Instant now, Plan& reply) {
  if (has(s.flags, SegFlags::kRst)) return TimeWaitVerdict::kDrop;  // RFC 1337
  const wire::TcpOptions o = wire::parse_tcp_options(s.options, has(s.flags, SegFlags::kSyn));
  const bool ts = w.timestamps && o.has_timestamps;
  const int32_t newer = ts ? static_cast<int32_t>(o.ts_val - w.ts_recent) : 0;
  if (has(s.flags, SegFlags::kSyn) && !has(s.flags, SegFlags::kAck)) {
    // RFC 6191 §2: a greater timestamp, or (equal or none) a greater sequence number.
    if (ts ? newer > 0 || (newer == 0 && s.seq.after(w.rcv_nxt)) : s.seq.after(w.rcv_nxt))
      return TimeWaitVerdict::kNewConnection;
    time_wait_ack(w, now, reply);
    return TimeWaitVerdict::kAck;
  }
  if (!has(s.flags, SegFlags::kAck) && !has(s.flags, SegFlags::kFin)) return TimeWaitVerdict::kDrop;
  if (ts && newer < 0) {
    time_wait_ack(w, now, reply);
    return TimeWaitVerdict::kAck;
  }
  if (has(s.flags, SegFlags::kFin)) {  // our last ACK was lost
    if (ts && newer > 0) w.ts_recent = o.ts_val;
    time_wait_ack(w, now, reply);
    return TimeWaitVerdict::kRestart;
  }
  // A bare ACK at rcv_nxt is the old connection's last: answering it could loop.
  if (s.payload.empty() && s.seq == w.rcv_nxt) return TimeWaitVerdict::kDrop;
  time_wait_ack(w, now, reply);
  return TimeWaitVerdict::kAck;
}

bool reset_for(const Segment& s, uint32_t payload_bytes, Plan& reply) {
  if (has(s.flags, SegFlags::kRst)) return false;
  reply = Plan{};
  if (has(s.flags, SegFlags::kAck)) {
    reply.seq = s.ack;
    reply.flags = SegFlags::kRst;
    return true;
  }
  const uint32_t length = payload_bytes + (has(s.flags, SegFlags::kSyn) ? 1 : 0) +
                          (has(s.flags, SegFlags::kFin) ? 1 : 0);
  reply.seq = Seq32(0);
  reply.ack = s.seq + length;
  reply.flags = SegFlags::kRst | SegFlags::kAck;
  return true;
}

}  // namespace vireo::tcp
