// Changes settings of a live connection; buffer limits for reading and writing.
#include <algorithm>

#include "stack/tcp/tcb.h"
#include "stack/tcp/window.h"

namespace vireo::tcp {

bool reopen_window(Tcb& t, uint64_t seen) {
  // Sent at once if the peer sees less than half of the open window and the step is worth a packet
  // (RFC 9293 §3.8.6.2.2).
  const uint64_t open = receive_room(t);
  const uint64_t step = std::min<uint64_t>(2ULL * t.path_mss, t.rcv_buf / 2);
  if (open < 2 * seen || open < seen + step) return false;
  ack_now(t, false);
  return true;
}

bool has_readable(const Tcb& t, uint32_t least) {
  const uint32_t queued = t.recv_queue.bytes();
  if (queued >= least || queued <= 1) return queued >= least;
  return t.rcv_adv <= t.rcv_nxt + t.rcv_mss;
}

bool is_opening(const Tcb& t) {
  return t.state == State::kSynSent || (t.state == State::kSynReceived && !t.fast_open);
}
int error(const Tcb& t) { return t.error; }

uint32_t buffer_room(const Tcb& t) {
  const uint64_t used = t.snd_end - std::max<StreamOffset>(t.snd_una, 1);
  const uint32_t limit = t.snd_buf;
  if (used >= limit) return 0;
  // Small segments in flight pin whole frames: wait while frames take four times the buffer.
  if (t.pool != nullptr &&
      uint64_t{t.queue.count()} * t.pool->frame_bytes() >= std::max<uint64_t>(4ULL * limit, 262144))
    return 0;
  return static_cast<uint32_t>(limit - used);
}

uint32_t send_room(const Tcb& t) {
  const uint32_t room = buffer_room(t);
  const uint32_t lowat = t.config->notsent_lowat;
  if (lowat == UINT32_MAX) [[likely]]
    return room;
  // Below the limit a whole segment is accepted, as Linux accepts a whole buffer.
  const uint64_t unsent = t.unsent();
  if (unsent >= lowat) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(room, std::max<uint64_t>(lowat - unsent, t.mss)));
}

bool is_writable(const Tcb& t) {
  const uint64_t room = buffer_room(t);
  return room != 0 && room * 2 >= unacked_bytes(t) &&
         (t.config->notsent_lowat == UINT32_MAX || t.unsent() * 2 < t.config->notsent_lowat);
}

uint32_t unacked_bytes(const Tcb& t) {
  const StreamOffset una = std::max<StreamOffset>(t.snd_una, 1);
  const StreamOffset end = t.snd_end + (t.fin_queued ? 1 : 0);
  return static_cast<uint32_t>(end > una ? end - una : 0);
}
uint8_t shut_doublings(const Tcb& t) {
  return t.rtx_timer == RtxTimer::kPersist ? t.backoff : uint8_t{0};
}
uint16_t effective_mss(const Tcb& t) { return t.mss; }

void set_nodelay(Tcb& t, bool on, Instant) {
  t.nodelay = on;
  forget_single(t);
  if (on && t.snd_nxt < t.snd_end) t.push = true;  // what Nagle held is sent, even corked (Linux)
}
void set_cork(Tcb& t, bool on, Instant now) {
  t.cork = on;
  // Nothing more will be sent: no timer.
  if (t.state == State::kClosed || t.reset_due) return;
  refresh_prediction(t);
  if (on) {
    if (t.autocork) t.push = true;  // earlier data is sent
    t.nagle_room = 0;
    // Before the SYN is sent, snd_nxt < snd_end without any data.
    if (!t.queue.has_ring() || t.snd_nxt >= t.snd_end) return;
    Scoreboard& b = t.queue.board();
    if (b.cork_at.is_never()) b.cork_at = now + Duration::ms(200);
    return;
  }
  t.more = false;
  if (t.queue.has_ring()) t.queue.board().cork_at = Instant::never();
  if (t.snd_nxt < t.snd_end) t.push = true;
}
void set_keepalive(Tcb& t, bool on, Duration idle, Duration interval, uint8_t count, Instant now) {
  t.config.change([&](Config& c) {
    c.keepalive = on;
    c.keep_idle = idle;
    c.keep_interval = interval;
    c.keep_count = count;
  });
  t.keep_probes = 0;
  const bool alive =
      t.state >= State::kEstablished && t.state < State::kTimeWait && !t.orphan && !t.reset_due;
  if (!t.orphan && t.state != State::kTimeWait)
    t.life_at = on && alive ? now + idle : Instant::never();
}
void set_user_timeout(Tcb& t, Duration d) {
  t.config.change([&](Config& c) { c.user_timeout = d; });
}
void set_rcv_buf(Tcb& t, uint32_t bytes) {
  t.rcv_buf = bytes;
  t.config.change([&](Config& c) { c.rcv_buf_max = bytes; });
}
void set_snd_buf(Tcb& t, uint32_t bytes) {
  t.snd_buf = bytes;
  forget_single(t);
  t.config.change([&](Config& c) { c.snd_buf_max = bytes; });
}
void set_max_pacing_rate(Tcb& t, uint64_t bytes_per_second) {
  t.config.change([&](Config& c) { c.max_pacing_rate = bytes_per_second; });
  t.paced = Pacer::is_bound(bytes_per_second);
  refresh_prediction(t);
}
void set_rto_min(Tcb& t, Duration d) {
  t.config.change([&](Config& c) { c.rto_min = d; });
  if (!t.rtt.has_sample()) return;
  t.rtt.rto = t.rtt.timeout(d, std::max(d, t.config->rto_max.get()));
}
void set_congestion(Tcb& t, CcKind kind) {
  if (t.config->congestion == kind) return;
  t.config.change([&](Config& c) { c.congestion = kind; });
  t.ecn_ect_all = t.ecn_on && kind == CcKind::kDctcp;
  if (t.state >= State::kEstablished) cc_change(t.cc, kind);
  refresh_prediction(t);
}
void set_fin_timeout(Tcb& t, Duration d) {
  t.config.change([&](Config& c) { c.fin_timeout = d; });
}
void set_rto_max(Tcb& t, Duration d) {
  t.config.change([&](Config& c) { c.rto_max = d; });
  t.rtt.rto = std::min(t.rtt.rto, d);
}
void set_syn_retries(Tcb& t, uint8_t n) {
  t.config.change([&](Config& c) { c.syn_retries = n; });
}
void set_window_clamp(Tcb& t, uint32_t bytes) {
  t.config.change([&](Config& c) { c.window_clamp = bytes; });
}
Effects set_notsent_lowat(Tcb& t, uint32_t bytes) {
  const bool was = is_writable(t);
  t.config.change([&](Config& c) { c.notsent_lowat = bytes; });
  refresh_prediction(t);
  return !was && is_writable(t) ? Effects::kWritable : Effects::kNone;
}

void set_watched(Tcb& t, bool on) {
  t.watched = on;
  refresh_prediction(t);
}

}  // namespace vireo::tcp
