// Passive opens: a SYN becomes a record of 64 bytes or, when the queue is full, a cookie; the third
// segment becomes a connection. What Linux does in tcp_conn_request(), tcp_check_req() and
// reqsk_timer_handler() (net/ipv4), with RFC 5961's care where that is stricter.
#include <algorithm>

#include "core/log.h"
#include "stack/engine/engine.h"
#include "stack/engine/mss.h"
#include "stack/tcp/syn_cookie.h"
#include "stack/wire/parse.h"

namespace vireo {
namespace {

using tcp::SegFlags;
using tcp::SynRecord;
using tcp::SynVerdict;

/// A tiny backlog is not a reason to lose options to a cookie at the second client.
constexpr uint32_t kLeastSynQueue = 8;
/// At most one answer in this time to a SYN that is said again and again (Linux
/// tcp_invalid_ratelimit).
constexpr Duration kRepeatInterval = Duration::ms(500);
/// What SynRecord::timeouts can count: tries an hour long, whatever tcp_synack_retries says.
constexpr uint64_t kMostTimeouts = 31;

uint32_t syn_queue_limit(const Listener& l) { return std::max(l.backlog, kLeastSynQueue); }

bool is_accept_queue_full(const Listener& l) { return l.ready_count > l.backlog; }

SynTuple tuple_of(const SynRecord& r) { return {r.local, r.remote, r.local_port, r.remote_port}; }

/// How many timeouts a record survives. Half of the queue is for the young: when they are crowded
/// out, the old have fewer tries.
uint64_t timeouts_allowed(const Listener& l) {
  uint64_t most = std::min<uint64_t>(l.config.synack_retries, kMostTimeouts);
  if (l.syn_count * 2 <= std::max(8U, l.backlog)) return most;
  for (uint64_t young = l.young_count * 2ULL; most > 2 && l.syn_count >= young; young *= 2) --most;
  return most;
}

}  // namespace

// ---- life

Carried<Listener*> Engine::tcp_listen(const Endpoint& local, bool v6only, uint32_t backlog,
                                      const tcp::Config& config, void* owner, SocketStats& stats,
                                      const ListenOptions& options) {
  auto place = std::find(listeners_.begin(), listeners_.end(), nullptr);
  if (place - listeners_.begin() >= kNoListener)
    return std::unexpected(Refusal{Carriage::kDevice, ENOSPC, "too many listeners"});
  auto l = std::make_unique<Listener>();
  l->kind = FlowKind::kListener;
  l->key = FlowKey{IpProto::kTcp, !local.addr.is_v4(), VlanId(), local, {}};
  l->v6only = v6only;
  l->config = config;
  l->options = options;
  l->backlog = backlog;
  l->owner = owner;
  l->stats = &stats;
  if (auto ok = bind_keys(*l); !ok) return std::unexpected(ok.error());
  if (auto ok = steer_bound(*l, options.device, l->rules); !ok) {
    unbind_keys(*l);
    return std::unexpected(ok.error());
  }
  count_flow();
  l->listener = static_cast<uint16_t>(place - listeners_.begin());
  if (place == listeners_.end())
    listeners_.push_back(l.get());
  else
    *place = l.get();
  return l.release();
}

TcpFlow* Engine::tcp_accept(Listener& l) {
  if (l.ready.empty()) return nullptr;
  TcpFlow& f = l.ready.front();
  l.ready.pop_front();
  --l.ready_count;
  f.listener = kNoListener;
  stats_.accepted.add();
  return &f;
}

void Engine::tcp_close_listener(Listener& l, Instant now) {
  // As Linux: half-open connections are forgotten; who completes one finds nobody and is reset.
  syns_.for_each([&](SynRecord& r) {
    if (r.listener == l.listener) syns_.erase(r);
  });
  unbind_keys(l);
  listeners_[l.listener] = nullptr;
  flow_count_.fetch_sub(1, std::memory_order_relaxed);
  while (!l.ready.empty()) {
    TcpFlow& f = l.ready.front();
    l.ready.pop_front();
    f.listener = kNoListener;
    tcp_close(f, UniqueFd(), /*reset=*/true, now);
  }
  // The listener's rules brought the frames of accepted connections: from now on each needs its
  // own.
  if (!l.rules.empty())
    tcp_.for_each([&](TcpFlow& f) {
      if (f.rule || f.egress.port == nullptr || f.key.local.port != l.key.local.port) return;
      if (tcp::state(f.tcb) == tcp::State::kClosed) return;  // the tuple may be another's by now
      if (auto rule = steer(*f.egress.port, f.key, f.tag)) f.rule = std::move(*rule);
    });
  delete &l;
}

/// What strangers cannot guess of a connection: its number's begin and its clock's.
uint64_t Engine::secret_of(const SynTuple& t) const noexcept {
  return tcp::tuple_hash(secret_, {t.local, t.local_port, 0}, {t.remote, t.remote_port, 0});
}

/// Who hears what came by `link`: those that are bound to it, else those that are bound to none; of
/// several the hash of the connection chooses one. Null: nobody.
Listener* Engine::member_for(const ListenGroup& g, const SynTuple& t, IfIndex link) const noexcept {
  const auto device = [](const Listener* l) { return l->options.device; };
  if (g.members.size() == 1) [[likely]] {
    Listener* const l = g.members.front();
    return device(l) == IfIndex() || device(l) == link ? l : nullptr;
  }
  for (const IfIndex wanted : {link, IfIndex()}) {
    const auto n = static_cast<uint64_t>(std::ranges::count(g.members, wanted, device));
    if (n == 0) continue;
    uint64_t skip = (secret_of(t) >> 32) * n >> 32;
    for (Listener* l : g.members)
      if (device(l) == wanted && skip-- == 0) return l;
  }
  return nullptr;
}

Carried<void> Engine::hear_by(Listener& l, IfIndex device) {
  if (l.options.device == device) return {};
  unbind_keys(l);  // which leaves its rules to those that it shares them with
  l.rules.clear();
  l.options.device = device;
  if (auto ok = bind_keys(l); !ok) return ok;
  return steer_bound(l, device, l.rules);
}

// ---- segments of no connection

/// @return true: it was for a listener, or for one of its half-open connections.
bool Engine::listen_segment(const Incoming& in, tcp::Segment& s, const tcp::TimeWait* before,
                            Instant now) noexcept {
  const SynTuple tuple{in.frame.dst(), in.frame.src(), in.frame.dst_port, in.frame.src_port};
  if (syns_.size() != 0)
    if (SynRecord* r = syns_.find(tuple)) return record_segment(*r, in, s, now);
  if (has(s.flags, SegFlags::kRst)) return false;
  Demux::Ref found = find_bound(IpProto::kTcp, tuple.local, tuple.local_port);
  if (found == 0) return false;
  const net::Link* const link = heard_by(in);
  if (link == nullptr) return true;  // and nobody is told
  Listener* l = member_for(at<ListenGroup>(found), tuple, link->index);
  if (l == nullptr) [[unlikely]] {  // who is bound to this address hears by another interface
    found =
        demux_.find_own(DemuxKey::bound(IpProto::kTcp, IpAddr(), tuple.local_port, in.frame.is_v6));
    if (found != 0) l = member_for(at<ListenGroup>(found), tuple, link->index);
    if (l == nullptr) return false;
  }
  if (has(s.flags, SegFlags::kAck))
    return !has(s.flags, SegFlags::kSyn) && cookie_arrived(*l, tuple, s, now);
  if (!has(s.flags, SegFlags::kSyn) || has(s.flags, SegFlags::kFin)) return true;  // RFC 9293: drop
  syn_arrived(*l, tuple, in, s, before, now);
  return true;
}

void Engine::syn_arrived(Listener& l, const SynTuple& tuple, const Incoming& in, tcp::Segment& syn,
                         const tcp::TimeWait* before, Instant now) noexcept {
  const bool is_full = l.syn_count >= syn_queue_limit(l);
  // Who proved itself by a connection that is in TIME_WAIT needs an ISN above: no cookie.
  const bool by_cookie =
      before == nullptr && (l.options.syncookies >= 2 || (is_full && l.options.syncookies == 1));
  if (is_accept_queue_full(l) || (is_full && !by_cookie && before == nullptr)) {
    l.stats->rx_drops.add();
    stats_.listen_overflows.add();
    return;
  }
  const uint64_t secret = secret_of(tuple);
  tcp::Config c = child_config(l, secret);
  if (by_cookie) {
    SynRecord r;
    r.local = tuple.local;
    r.remote = tuple.remote;
    r.local_port = tuple.local_port;
    r.remote_port = tuple.remote_port;
    r.listener = l.listener;
    tcp::adopt_syn(r, c, syn);
    tcp::make_cookie(r, secret_, now);
    l.cookies_at = now;
    stats_.syn_cookies_sent.add();
    if (is_full) warn_of_flood(l, now);
    say_syn_ack(r, c, in, syn, now);
    return;
  }
  if (before == nullptr && open_fast(l, tuple, in, syn, now)) return;
  SynRecord* const r = syns_.insert(tuple);
  if (r == nullptr) return;
  r->listener = l.listener;
  tcp::adopt_syn(*r, c, syn);
  r->iss = tcp::initial_sequence(secret, now);
  if (before != nullptr) r->iss = tcp::beyond_old_window(r->iss, before->snd_nxt);
  ++l.syn_count;
  ++l.young_count;
  syns_.schedule(*r, now);
  say_syn_ack(*r, c, in, syn, now);
}

/// A segment of a half-open connection. @return false: a stranger's, to be reset.
bool Engine::record_segment(SynRecord& r, const Incoming& in, tcp::Segment& s,
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
      reply(in, plan);
      return true;
    }
    case SynVerdict::kRepeat:
      if (r.is_retried && now - r.sent(now) < kRepeatInterval) return true;
      r.is_retried = true;
      syns_.schedule(r, now);
      say_syn_ack(r, c, in, s, now);
      return true;
    case SynVerdict::kOpen:
      break;
  }
  const bool is_bare = s.payload.empty() && !has(s.flags, SegFlags::kFin);
  if (is_bare && r.timeouts < l.options.defer_accept) {
    r.acked = true;
    return true;
  }
  if (open_child(l, r, c, s, now)) {
    forget_record(r);
    return true;
  }
  // As Linux: not taken, and told again by the next SYN-ACK, or reset if the operator wants it.
  if (is_accept_queue_full(l) && l.options.abort_on_overflow) {
    forget_record(r);
    return false;
  }
  r.acked = true;
  return true;
}

/// An ACK out of nowhere: does its number show that we offered it? @return false: no.
bool Engine::cookie_arrived(Listener& l, const SynTuple& tuple, tcp::Segment& s,
                            Instant now) noexcept {
  if (l.options.syncookies == 0 || now - l.cookies_at > tcp::kCookieLife) return false;
  SynRecord r;
  r.local = tuple.local;
  r.remote = tuple.remote;
  r.local_port = tuple.local_port;
  r.remote_port = tuple.remote_port;
  r.listener = l.listener;
  tcp::Config c = child_config(l, secret_of(tuple));
  if (!tcp::open_cookie(r, secret_, c, s, now)) {
    stats_.syn_cookies_failed.add();
    return false;
  }
  stats_.syn_cookies_received.add();
  (void)open_child(l, r, c, s, now);  // refused: the peer says its data again
  return true;
}

/// Makes the connection that a third segment completes, and gives it that segment. `c` is
/// child_config()'s. @return false: the accept queue is full, memory is exhausted, or there is no
/// way back.
bool Engine::open_child(Listener& l, const SynRecord& r, tcp::Config& c, tcp::Segment& s,
                        Instant now) noexcept {
  if (is_accept_queue_full(l)) {
    l.stats->rx_drops.add();
    stats_.listen_overflows.add();
    return false;
  }
  TcpFlow* const f = new_child(l, tuple_of(r), now);
  if (f == nullptr) return false;
  c.mss = mss_within(c.mss, f->egress.mtu, f->key.v6);
  tcp::open_from_record(f->tcb, c, *pool_, r, now);
  queue_child(l, *f);
  note_effects(*f, tcp::input(f->tcb, std::move(s), now));
  want_transmit(*f);
  return true;
}

/// A flow with its way back; nullptr: memory is exhausted, or there is none.
TcpFlow* Engine::new_child(const Listener& l, const SynTuple& t, Instant now) noexcept {
  TcpFlow* const f = new_tcp({IpProto::kTcp,
                              !t.remote.is_v4(),
                              VlanId(),
                              {t.local, t.local_port, 0},
                              {t.remote, t.remote_port, l.options.device.value()}});
  if (f == nullptr) return nullptr;
  f->reuse_addr = l.options.reuse_addr;
  f->reuse_port = l.options.reuse_port;
  f->ip = l.options.ip;
  f->mss_limit = l.config.mss;
  (void)resolve_egress(f->egress, f->key.proto, f->key.local, f->key.remote, f->ip, now);
  if (f->egress.port == nullptr) {
    free_tcp(*f);
    return nullptr;
  }
  if (!t.remote.is_v4() && t.remote.is_link_local())
    f->key.local.scope = f->key.remote.scope = f->egress.ifindex.value();
  return f;
}

/// accept() will find it. Its Tcb is open.
void Engine::queue_child(Listener& l, TcpFlow& f) noexcept {
  write_will(f);
  f.listener = l.listener;
  l.ready.push_back(f);
  ++l.ready_count;
}

// ---- what is said for a record

/// Settings of a connection to be: the listener's, the tuple's timestamp clock. The path's MSS is
/// not looked at yet.
tcp::Config Engine::child_config(const Listener& l, uint64_t secret) const noexcept {
  tcp::Config c = l.config;
  c.ts_offset = tcp::timestamp_offset(secret);
  c.spread_rto = true;
  return c;
}

Result<void> Engine::way_back(const Listener& l, const SynTuple& t, Egress& e,
                              Instant now) noexcept {
  e.asked = syn_asked_;
  auto ok = resolve_egress(e, IpProto::kTcp, {t.local, t.local_port, 0},
                           {t.remote, t.remote_port, l.options.device.value()}, l.options.ip, now);
  syn_asked_ = e.asked;
  return ok;
}

/// The SYN-ACK in answer to a SYN. `c` is child_config()'s.
void Engine::say_syn_ack(SynRecord& r, tcp::Config& c, const Incoming& in, const tcp::Segment& syn,
                         Instant now) noexcept {
  Egress e;
  const SynTuple tuple = tuple_of(r);
  const Listener& l = *listeners_[r.listener];
  const auto ok = way_back(l, tuple, e, now);
  if (e.port == nullptr) return;  // no way back, or not by a carried interface
  c.mss = mss_within(c.mss, e.mtu, !tuple.remote.is_v4());
  tcp::Plan plan;
  if (r.is_cookie) {
    tcp::plan_cookie_syn_ack(r, c, now, plan);
  } else {
    tcp::plan_syn_ack(r, c, now, plan);
    grant_fast_open(l, tuple, syn, plan);
  }
  if (ok)
    send_alone(*e.port, e.header, plan);
  else if (ok.error().code == EAGAIN && e.port == &in.port)
    reply(in, plan);  // the kernel does not know the neighbour yet; the frame came from it
}

/// The SYN-ACK again, unasked. @return false: there is no way any more.
bool Engine::repeat_syn_ack(SynRecord& r, Instant now) noexcept {
  Egress e;
  const SynTuple tuple = tuple_of(r);
  const Listener& l = *listeners_[r.listener];
  if (const auto ok = way_back(l, tuple, e, now); !ok) return ok.error().code == EAGAIN;
  tcp::Config c = child_config(l, secret_of(tuple));
  c.mss = mss_within(c.mss, e.mtu, !tuple.remote.is_v4());
  tcp::Plan plan;
  tcp::plan_syn_ack(r, c, now, plan);
  send_alone(*e.port, e.header, plan);
  stats_.retransmits.add();
  return true;
}

void Engine::forget_record(SynRecord& r) noexcept {
  Listener& l = *listeners_[r.listener];
  --l.syn_count;
  if (r.timeouts == 0) --l.young_count;
  syns_.erase(r);
}

void Engine::expire_records(Instant now) noexcept {
  for (unsigned i = 0; i < kTimersPerPoll; ++i) {
    SynRecord* const r = syns_.pop_due(now);
    if (r == nullptr) return;
    Listener& l = *listeners_[r->listener];
    const unsigned deferred = l.options.defer_accept;
    // A deferred connection whose ACK came is left in peace until the time is nearly over; then a
    // last SYN-ACK makes the peer say its ACK again, which is taken as it is.
    const bool is_over = r->timeouts >= timeouts_allowed(l) &&
                         (deferred == 0 || !r->acked || r->timeouts >= deferred);
    const bool must_say = deferred == 0 || !r->acked || r->timeouts + 1U >= deferred;
    if (is_over || (must_say && !repeat_syn_ack(*r, now) && !r->acked)) {
      forget_record(*r);
      continue;
    }
    if (must_say) r->is_retried = true;
    if (r->timeouts == 0) --l.young_count;
    if (r->timeouts < kMostTimeouts) r->timeouts = (r->timeouts + 1) & kMostTimeouts;
    syns_.schedule(*r, now);
  }
}

/// An ICMP error quoted our SYN-ACK (RFC 5927 §4.1: only that).
void Engine::told_of_record(SynRecord& r, Seq32 quoted) noexcept {
  if (quoted == r.iss) forget_record(r);
}

void Engine::warn_of_flood(const Listener& l, Instant now) noexcept {
  if (now - flood_warned_ < Duration::s(60)) return;
  flood_warned_ = now;
  log<LogLevel::kWarn>("port {}: more SYNs than the backlog of {} holds: answered by cookies",
                       l.key.local.port, l.backlog);
}

}  // namespace vireo
