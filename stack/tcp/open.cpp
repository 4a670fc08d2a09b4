// Opens connections, actively, passively and simultaneously, and sets their initial state.
#include <algorithm>
#include <cstring>
#include <utility>

#include "stack/tcp/delayed_ack.h"
#include "stack/tcp/syn_record.h"
#include "stack/tcp/take_over.h"
#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

namespace {

void begin(Tcb& t, const Config& c, PacketPool& pool, Seq32 iss) {
  release(t);
  t.pool = &pool;
  t.rcv_buf = c.rcv_buf;
  t.snd_buf = c.snd_buf;
  t.path_mss = c.mss;
  t.ts_offset = c.ts_offset;
  Config common = c;
  common.wscale = fitting_wscale(c);
  // No connection grows to more than a quarter of the frames.
  const uint64_t share = uint64_t{pool.size()} * pool.frame_bytes() / 4;
  common.rcv_buf_max = static_cast<uint32_t>(std::min<uint64_t>(c.rcv_buf_max, share));
  common.snd_buf_max = static_cast<uint32_t>(std::min<uint64_t>(c.snd_buf_max, share));
  t.config.set(common);
  t.paced = Pacer::is_bound(c.max_pacing_rate);
  t.iss = iss;
  t.nodelay = c.nodelay;
  t.cork = c.cork;
  t.rtt.start(c.rto_initial);
  t.quick_acks = kQuickAcks;
  t.error = 0;
}

/// Sets the receive window that our SYN advertised, unscaled (RFC 7323 §2.2).
void expect_from(Tcb& t, Seq32 irs) {
  t.irs = irs;
  t.rcv_nxt = 1;
  t.rcv_acked = 1;
  t.rcv_adv = 1 + first_window(t);
  t.rcv_mss = std::min(t.path_mss, kDefaultMss);
}

}  // namespace

uint8_t fitting_wscale(const Config& c) {
  uint8_t shift = std::min(c.wscale, wire::kMaxWindowScale);
  while (shift > 0 && (16ULL << shift) > c.rcv_buf) --shift;
  return shift;
}

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
  adopt_syn(t, syn, wire::parse_tcp_options(syn.options, true), now);
  t.syn_due = true;
  t.last_sent = now;
}

void open_fast(Tcb& t, const Config& c, PacketPool& pool, Segment&& syn, Seq32 iss, Instant now) {
  open_passive(t, c, pool, syn, iss, now);
  t.fast_open = true;
  cc_start(t.cc, c.congestion, t.mss, false);
  const uint32_t length = syn.payload.bytes();
  if (length > first_window(t)) syn.payload.trim_back(length - first_window(t));
  if (syn.payload.empty()) return;
  t.data_segs_in = 1;
  t.last_received = now;
  accept_data(t, std::move(syn.payload), now);
  t.acks_due = 0;  // the SYN-ACK acknowledges it
  t.delack_at = Instant::never();
}

void open_from_record(Tcb& t, const Config& c, PacketPool& pool, const SynRecord& r, Instant now) {
  begin(t, c, pool, r.iss);
  t.state = State::kSynReceived;
  t.passive = true;
  t.segs_in = t.segs_out = 1;
  expect_from(t, r.irs);
  t.snd_wl1 = r.irs;
  t.ts_on = r.ts_on;
  t.sack_on = r.sack_on;
  t.wscale_on = r.wscale_on;
  if (t.wscale_on) {
    t.snd_wscale = r.wscale;
    t.rcv_wscale = t.config->wscale;
  }
  t.ts_recent = r.ts_recent;
  if (t.ts_on) t.ts_recent_s = seconds(now);
  ecn_settle(t, r.ecn_on);
  t.peer_mss = r.mss;
  update_mss(t);
  t.snd_nxt = t.snd_max = 1;
  t.last_sent = r.sent(now);
  t.syn_retried = r.is_retried;
  t.total_retrans = static_cast<uint32_t>(r.timeouts);
}

namespace {

bool put_unread(Tcb& t, std::span<const std::byte> bytes) {
  const size_t room = t.pool->frame_bytes() - PacketPool::kHeadroom;
  while (!bytes.empty()) {
    PacketBuf* const p = t.pool->take_for_rx();
    if (p == nullptr) return false;
    const auto part = bytes.first(std::min(bytes.size(), room));
    std::memcpy(p->data(), part.data(), part.size());
    p->length = static_cast<uint16_t>(part.size());
    t.recv_queue.push_back(PacketRef(p));
    bytes = bytes.subspan(part.size());
  }
  return true;
}

}  // namespace

bool open_taken_over(Tcb& t, const Config& c, PacketPool& pool, const TakeOver& o, Instant now) {
  begin(t, c, pool, o.snd_nxt - 1);
  t.passive = true;
  const auto unread = static_cast<uint32_t>(o.unread.size());
  t.irs = o.rcv_nxt - unread - 1;
  t.rcv_nxt = 1 + uint64_t{unread};
  t.rcv_acked = t.rcv_nxt - static_cast<uint32_t>(std::max(o.rcv_nxt - o.rcv_acked, 0));
  t.rcv_adv = t.rcv_nxt + static_cast<uint32_t>(std::max(o.rcv_adv - o.rcv_nxt, 0));
  t.rcv_mss = std::min(t.path_mss, kDefaultMss);
  if (!put_unread(t, o.unread)) {
    release(t);
    return false;
  }
  t.snd_una = t.snd_nxt = t.snd_max = t.snd_end = 1;
  t.snd_edge = t.snd_una + o.snd_wnd;
  t.max_wnd = o.max_wnd;
  t.snd_wl1 = o.snd_wl1;
  t.snd_wl2 = o.snd_nxt;
  t.wscale_on = o.wscale;
  t.snd_wscale = o.snd_wscale;
  t.rcv_wscale = o.rcv_wscale;
  t.sack_on = o.sack;
  t.ts_on = o.timestamps;
  // One more than the other's clock shows: it may have been about to tick.
  t.ts_offset = o.timestamp + 1 - timestamp_clock(now, 0);
  // Linux does not tell TS.Recent: as if it were outdated, so that any timestamp replaces it (RFC
  // 7323 §5.5).
  t.ts_recent_s = seconds(now) - kPawsIdle - 1;
  ecn_settle(t, o.ecn);
  t.peer_mss = o.peer_mss;
  update_mss(t);
  establish(t, now);
  if (o.srtt > Duration{}) t.rtt.sample(o.srtt, t.config->rto_min, t.config->rto_max);
  if (unread != 0) {
    t.data_segs_in = 1;
    t.last_received = now;
  }
  t.last_sent = t.last_ack = now;
  if (t.rcv_acked != t.rcv_nxt) t.delack_at = now + t.config->delack_max;
  refresh_prediction(t);
  return true;
}

void adopt_syn(Tcb& t, const Segment& syn, const wire::TcpOptions& o, Instant now) {
  const Config& c = *t.config;
  expect_from(t, syn.seq);
  t.snd_wl1 = syn.seq;
  ecn_adopt_syn(t, syn);
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
    t.ts_recent_s = seconds(now);
  }
  t.peer_mss = o.has_mss ? o.mss : kDefaultMss;
  update_mss(t);
}

uint16_t largest_segment(const Tcb& t) {
  const uint32_t frame = t.pool == nullptr ? 65535 : t.pool->frame_bytes() - PacketPool::kHeadroom;
  const unsigned options = plain_options(t);
  const uint32_t most = std::min(t.peer_mss, t.path_mss);
  if (most <= frame + options) [[likely]]
    return static_cast<uint16_t>(most);
  // Equal frames, which a device may join up to the path MTU.
  const uint32_t text = most - options;
  return static_cast<uint16_t>(text / ((text + frame - 1) / frame) + options);
}

uint32_t full_mss(const Tcb& t) { return std::min(t.peer_mss, t.path_mss) - plain_options(t); }

void update_mss(Tcb& t) {
  uint16_t most = largest_segment(t);
  if (t.searches_mtu) most = std::min(most, t.mtu_search->search_low);
  t.mss = static_cast<uint16_t>(std::max(most - plain_options(t), int{kMinMss}));
  t.cc.cwnd = std::max<uint32_t>(t.cc.cwnd, t.mss);  // at least one segment (RFC 5681 §3.1)
  forget_single(t);
}

void set_mss(Tcb& t, uint16_t mss) {
  t.path_mss = mss;
  update_mss(t);
}

void establish(Tcb& t, Instant now) {
  t.state = State::kEstablished;
  if (t.config->mtu_probing == MtuProbing::kAlways) begin_mtu_search(t, now);
  if (!t.fast_open || t.syn_retried) cc_start(t.cc, t.config->congestion, t.mss, t.syn_retried);
  t.retransmits = 0;
  if (t.config->keepalive && !t.orphan) t.life_at = now + t.config->keep_idle;
  if (t.fin_queued) t.state = State::kFinWait1;
}

}  // namespace vireo::tcp
