// Active, passive and simultaneous open; what a connection is at its birth.
#include <algorithm>

#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

namespace {

constexpr uint16_t kMinMss = 48;       // payload after options (Linux tcp_min_snd_mss)
constexpr uint16_t kDefaultMss = 536;  // RFC 9293 §3.7.1

void begin(Tcb& t, const Config& c, PacketPool& pool, Seq32 iss) {
  release(t);
  t.config = c;
  // A step of the window field that is coarse against the buffer would round it away.
  uint8_t& shift = t.config.wscale;
  shift = std::min(shift, wire::kMaxWindowScale);
  while (shift > 0 && (16ULL << shift) > c.rcv_buf) --shift;
  t.pool = &pool;
  t.iss = iss;
  t.nodelay = c.nodelay;
  t.cork = c.cork;
  t.rtt.start(c.rto_initial);
  t.quick_acks = kQuickAcks;
  t.error = 0;
}

}  // namespace

void open_active(Tcb& t, const Config& c, PacketPool& pool, Seq32 iss, Instant now) {
  begin(t, c, pool, iss);
  t.state = State::kSynSent;
  t.syn_due = true;
  t.last_sent = now;
}

void open_passive(Tcb& t, const Config& c, PacketPool& pool, const Segment& syn, Seq32 iss,
                  Instant now) {
  begin(t, c, pool, iss);
  t.state = State::kSynReceived;
  t.passive = true;
  ++t.segs_in;
  adopt_syn(t, syn, now);
  t.syn_due = true;
  t.last_sent = now;
}

void adopt_syn(Tcb& t, const Segment& syn, Instant now) {
  const wire::TcpOptions o = wire::parse_tcp_options(syn.options, true);
  const Config& c = t.config;
  t.irs = syn.seq;
  t.rcv_nxt = 1;
  t.rcv_acked = 1;
  t.rcv_adv = 1 + std::min<uint32_t>(c.rcv_buf, 65535);  // what our SYN says, unscaled
  t.snd_wl1 = syn.seq;
  t.snd_edge = syn.window;  // RFC 7323 §2.2: never scaled in a SYN
  t.max_wnd = syn.window;
  t.ts_on = c.timestamps && o.has_timestamps;
  t.sack_on = c.sack && o.sack_permitted;
  t.wscale_on = c.window_scaling && o.has_window_scale;
  if (t.wscale_on) {
    t.snd_wscale = o.window_scale;
    t.rcv_wscale = c.wscale;
  }
  if (t.ts_on) {
    t.ts_recent = o.ts_val;
    t.ts_recent_at = now;
  }
  t.peer_mss = o.has_mss ? o.mss : kDefaultMss;
  update_mss(t);
  t.rcv_mss = std::min(c.mss, kDefaultMss);
}

void update_mss(Tcb& t) {
  const int options = t.ts_on ? 12 : 0;
  const int frame =
      t.pool == nullptr ? 65535 : static_cast<int>(t.pool->frame_bytes() - PacketPool::kHeadroom);
  const int mss = std::min({int{t.peer_mss} - options, int{t.config.mss} - options, frame});
  t.mss = static_cast<uint16_t>(std::max(mss, int{kMinMss}));
}

void set_mss(Tcb& t, uint16_t mss) {
  t.config.mss = mss;
  update_mss(t);
}

void establish(Tcb& t, Instant now) {
  t.state = State::kEstablished;
  cc_start(t.cc, t.config.congestion, t.mss, t.syn_retried);
  t.retransmits = 0;
  if (t.config.keepalive) t.keep_at = now + t.config.keep_idle;
  if (t.fin_queued) t.state = State::kFinWait1;
}

}  // namespace vireo::tcp
