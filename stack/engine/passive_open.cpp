// Segments without a connection: for a listener or a half-open connection.
#include <algorithm>

#include "stack/engine/hub.h"
#include "stack/engine/mss.h"
#include "stack/tcp/syn_cookie.h"
#include "stack/wire/parse.h"

namespace vireo {
namespace {

using tcp::SegFlags;
using tcp::SynRecord;
using tcp::SynVerdict;

/// With a tiny backlog, the second client should not yet get a cookie and lose its options.
constexpr uint32_t kMinSynQueue = 8;
/// Interval of answers to a repeated SYN (Linux tcp_invalid_ratelimit).
constexpr Duration kRepeatInterval = Duration::ms(500);

uint32_t syn_queue_limit(const Listener& l) { return std::max(l.backlog, kMinSynQueue); }

bool is_accept_queue_full(const Listener& l) { return l.ready_count > l.backlog; }

}  // namespace

bool PassiveOpen::segment_arrived(const Incoming& in, tcp::Segment& s, const tcp::TimeWait* before,
                                  Instant now) noexcept {
  const SynTuple tuple{in.frame.dst(), in.frame.src(), in.frame.dst_port, in.frame.src_port};
  if (syns_.size() != 0)
    if (SynRecord* r = syns_.find(tuple)) return record_segment(*r, in, s, now);
  if (has(s.flags, SegFlags::kRst)) return false;
  Demux::Ref found = hub().keys.find(IpProto::kTcp, tuple.local, tuple.local_port);
  if (found == 0) return false;
  const net::Link* const link = hub().host.link_to_answer(in);
  if (link == nullptr) return true;  // handled, and without an answer
  Listener* l = member_for(at<ListenGroup>(found), tuple, link->index);
  if (l == nullptr) [[unlikely]] {  // the listener of this address receives by another interface
    found = hub().demux.find_own(
        DemuxKey::bound(IpProto::kTcp, IpAddr(), tuple.local_port, in.frame.is_v6));
    if (found != 0) l = member_for(at<ListenGroup>(found), tuple, link->index);
    if (l == nullptr) return false;
  }
  if (has(s.flags, SegFlags::kAck))
    return !has(s.flags, SegFlags::kSyn) && cookie_arrived(*l, tuple, s, now);
  if (!has(s.flags, SegFlags::kSyn) || has(s.flags, SegFlags::kFin)) return true;  // RFC 9293: drop
  syn_arrived(*l, tuple, in, s, before, now);
  return true;
}

void PassiveOpen::syn_arrived(Listener& l, const SynTuple& tuple, const Incoming& in,
                              tcp::Segment& syn, const tcp::TimeWait* before,
                              Instant now) noexcept {
  const bool is_full = l.syn_count >= syn_queue_limit(l);
  // After a connection in TIME-WAIT the ISN must be above the old one, which a cookie is not.
  const bool by_cookie =
      before == nullptr && (l.options.syncookies >= 2 || (is_full && l.options.syncookies == 1));
  if (is_accept_queue_full(l) || (is_full && !by_cookie && before == nullptr)) {
    l.stats->rx_drops.add();
    hub().stats.listen_overflows.add();
    return;
  }
  const uint64_t secret = secret_of(tuple);
  tcp::Config c = child_config(l, secret);
  if (by_cookie) {
    SynRecord r;
    set_tuple(r, tuple);
    r.listener = l.listener;
    tcp::adopt_syn(r, c, syn);
    tcp::make_cookie(r, hub().secret, now);
    l.cookies_at = now;
    hub().stats.syn_cookies_sent.add();
    if (is_full) warn_of_flood(l, now);
    send_syn_ack(r, c, in, syn, now);
    return;
  }
  if (before == nullptr && open_fast(l, tuple, in, syn, now)) return;
  SynRecord* const r = syns_.insert(tuple);
  if (r == nullptr) return;
  r->listener = l.listener;
  if (const int failed = needs_rule(l, in.port) ? make_rule(*r, in.port) : 0; failed != 0) {
    syns_.erase(*r);
    if (failed != EBUSY) (void)hub().steering.give_to_kernel(in.port, in.frame, syn.payload);
    return;
  }
  tcp::adopt_syn(*r, c, syn);
  r->iss = tcp::initial_sequence(secret, now);
  if (before != nullptr) r->iss = tcp::beyond_old_window(r->iss, before->snd_nxt);
  ++l.syn_count;
  ++l.young_count;
  syns_.schedule(*r, now);
  send_syn_ack(*r, c, in, syn, now);
}

/// A segment for a half-open connection. @return false: not a valid one, to be reset.
bool PassiveOpen::record_segment(SynRecord& r, const Incoming& in, tcp::Segment& s,
                                 Instant now) noexcept {
  Listener& l = *listeners_[r.listener];
  tcp::Config c = child_config(l, secret_of(tuple_of(r)));
  switch (tcp::syn_record_input(r, c, s)) {
    case SynVerdict::kDrop:
      return true;
    case SynVerdict::kReset:
      return false;
    case SynVerdict::kGone:
      forget_record(r);
      return true;
    case SynVerdict::kChallenge: {
      if (!challenges_.allow(now)) return true;
      tcp::Plan plan;
      tcp::plan_record_ack(r, c, now, plan);
      hub().replies.reply(in, plan);
      return true;
    }
    case SynVerdict::kRepeat:
      if (r.is_retried && now - r.sent(now) < kRepeatInterval) return true;
      r.is_retried = true;
      syns_.schedule(r, now);
      send_syn_ack(r, c, in, s, now);
      return true;
    case SynVerdict::kOpen:
      break;
  }
  const bool is_bare = s.payload.empty() && !has(s.flags, SegFlags::kFin);
  if (is_bare && r.timeouts < l.options.defer_accept && !l.is_leaving()) {
    r.acked = true;
    return true;
  }
  if (open_child(l, r, c, s, now)) {
    forget_record(r);
    return true;
  }
  // As Linux: not accepted, and tried again after the next SYN-ACK; or reset, if the operator wants
  // it.
  if (is_accept_queue_full(l) && l.options.abort_on_overflow) {
    forget_record(r);
    return false;
  }
  r.acked = true;
  return true;
}

/// An ACK without a record: is its number a cookie of ours? @return false: no.
bool PassiveOpen::cookie_arrived(Listener& l, const SynTuple& tuple, tcp::Segment& s,
                                 Instant now) noexcept {
  // Another process may have sent the cookie.
  const bool may_be = now - l.cookies_at <= tcp::kCookieLife || l.options.is_shared();
  if (l.options.syncookies == 0 || !may_be) return false;
  SynRecord r;
  set_tuple(r, tuple);
  r.listener = l.listener;
  tcp::Config c = child_config(l, secret_of(tuple));
  if (!tcp::open_cookie(r, hub().secret, c, s, now)) {
    hub().stats.syn_cookies_failed.add();
    return false;
  }
  hub().stats.syn_cookies_received.add();
  (void)open_child(l, r, c, s, now);  // on failure the peer retransmits its data
  return true;
}

/// Creates the connection that the third segment completes, and passes it that segment. `c` is
/// child_config()'s. @return false: the accept queue is full, memory is exhausted, or there is no
/// route back.
bool PassiveOpen::open_child(Listener& l, const SynRecord& r, tcp::Config& c, tcp::Segment& s,
                             Instant now) noexcept {
  if (is_accept_queue_full(l)) {
    l.stats->rx_drops.add();
    hub().stats.listen_overflows.add();
    return false;
  }
  TcpFlow* const f = new_child(l, tuple_of(r), now);
  if (f == nullptr) return false;
  if (!syn_rules_.empty()) [[unlikely]]
    pass_rule(r, *f);
  if (!make_rule(l, *f)) {
    hub().tcp.free(*f);
    return false;
  }
  c.mss = mss_within(c.mss, f->egress.mtu, f->key.v6);
  tcp::open_from_record(f->tcb, c, hub().pool, r, now);
  queue_child(l, *f);
  hub().notifications.note(*f, tcp::input(f->tcb, std::move(s), now));
  hub().output.want(*f);
  return true;
}

/// A flow with its egress; nullptr: memory is exhausted, or there is no route.
TcpFlow* PassiveOpen::new_child(const Listener& l, const SynTuple& t, Instant now) noexcept {
  FlowKey key = flow_key(t);
  key.remote.scope = l.options.device.value();
  TcpFlow* const f = hub().tcp.make(key);
  if (f == nullptr) return nullptr;
  f->reuse_addr = l.options.reuse_addr;
  f->reuse_port = l.options.reuse_port;
  f->ip = l.options.ip;
  f->mss_limit = l.config.mss;
  (void)hub().next_hops.resolve(f->egress, f->key.proto, f->key.local, f->key.remote, f->ip, now);
  if (f->egress.port == nullptr) {
    hub().tcp.free(*f);
    return nullptr;
  }
  if (!t.remote.is_v4() && t.remote.is_link_local())
    f->key.local.scope = f->key.remote.scope = f->egress.ifindex.value();
  return f;
}

/// Puts it into the accept queue. Its Tcb is open.
void PassiveOpen::queue_child(Listener& l, TcpFlow& f) noexcept {
  hub().will.write(f);
  f.listener = l.listener;
  l.ready.push_back(f);
  ++l.ready_count;
  if (l.is_leaving()) leaving_until_ = Instant();
}

void PassiveOpen::error_arrived(const ip::IcmpError& e) noexcept {
  SynRecord* const r = syns_.find({e.local.addr, e.remote.addr, e.local.port, e.remote.port});
  if (r != nullptr && Seq32(e.tcp_seq) == r->iss) forget_record(*r);
}

}  // namespace vireo
