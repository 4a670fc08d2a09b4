// TCP connections in the engine: made by connect or by listen.cpp, fed by receive.cpp, emptied into
// the device by transmit.cpp.
#include <algorithm>

#include "stack/engine/direct.h"
#include "stack/engine/mss.h"
#include "stack/tcp/held.h"
#include "stack/wire/parse.h"

namespace vireo {
namespace {

using tcp::Effects;

/// Of what one write gives, so much at a time: what transmit() sends in one turn, with Ethernet's
/// segments.
constexpr size_t kPiece = size_t{64} * 1460;

}  // namespace

// ---- life

TcpFlow* Engine::new_tcp(const FlowKey& key) {
  TcpFlow* f = tcp_.alloc();
  if (f == nullptr) return nullptr;
  f->kind = FlowKind::kTcp;
  f->tag = FlowTag(tcp_.handle(*f).index + 1);
  f->key = key;
  f->stats = &spare_stats_;
  if (!demux_.insert(demux_key(key), ref(*f))) {
    tcp_.free(*f);
    return nullptr;
  }
  count_flow();
  return f;
}

void Engine::free_tcp(TcpFlow& f) noexcept {
  demux_.erase(demux_key(f.key), ref(f));
  end_tcp(f);
}

/// A SYN of its addresses and ports, and somebody listens: what is over and still here, because
/// nobody has seen it yet or its program has the socket, stands in no way (RFC 9293 §3.10.7.1).
/// A connection in TIME-WAIT makes way to what an entry would: `before`. @return the tuple is free.
bool Engine::make_way(TcpFlow& f, const tcp::Segment& syn, std::optional<tcp::TimeWait>& before,
                      Instant now) noexcept {
  const tcp::State state = tcp::state(f.tcb);
  const bool waits = state == tcp::State::kTimeWait && !f.pending_hook.is_linked();
  if ((state != tcp::State::kClosed && !waits) || f.tcb.reset_due) return false;
  if (has(syn.flags, tcp::SegFlags::kAck | tcp::SegFlags::kRst)) return false;
  if (find_bound(IpProto::kTcp, f.key.local.addr, f.key.local.port) == 0) return false;
  if (waits) {
    tcp::TimeWait wait = tcp::make_time_wait(f.tcb);
    tcp::Plan none;
    if (tcp::time_wait_input(wait, syn, now, none) != tcp::TimeWaitVerdict::kNewConnection)
      return false;
    before = wait;
    note_effects(f, tcp::finish(f.tcb, 0));
    arm_timer(f);
  }
  give_tuple_up(f);
  return true;
}

/// One that is over lives on for its program alone.
void Engine::give_tuple_up(TcpFlow& f) noexcept {
  if (f.is_orphan()) return free_tcp(f);
  forget_heard(f);
  demux_.erase(demux_key(f.key), ref(f));
  f.rule = FlowRule();
}

/// Makes room in the demux for a connection of the program's. As Linux (tcp_twsk_unique()): what is
/// in TIME-WAIT makes way if its timestamps tell old segments from new ones, or if the program did
/// not ask for its port. @return what was in TIME-WAIT. Errors: EADDRNOTAVAIL.
Carried<std::optional<tcp::TimeWait>> Engine::take_tuple(const FlowKey& key,
                                                         PortOrigin origin) noexcept {
  const Refusal taken{Carriage::kDevice, EADDRNOTAVAIL, "connection exists"};
  const auto gives_way = [&](const tcp::TimeWait& w) {
    return w.timestamps || origin != PortOrigin::kProgram;
  };
  const Demux::Ref r = demux_.find_own(demux_key(key));
  if (kind_of(r) == FlowKind::kTimeWait) {
    TimeWaitEntry& e = at<TimeWaitEntry>(r);
    const tcp::TimeWait before = e.wait;
    if (!gives_way(before)) return std::unexpected(taken);
    drop_time_wait(e);
    return before;
  }
  if (kind_of(r) != FlowKind::kTcp) return std::nullopt;
  TcpFlow& f = at<TcpFlow>(r);
  if (f.tcb.reset_due || f.pending_hook.is_linked()) return std::unexpected(taken);
  std::optional<tcp::TimeWait> before;
  if (tcp::state(f.tcb) == tcp::State::kTimeWait) {
    before = tcp::make_time_wait(f.tcb);
    if (!gives_way(*before)) return std::unexpected(taken);
    note_effects(f, tcp::finish(f.tcb, 0));
    arm_timer(f);
  } else if (tcp::state(f.tcb) != tcp::State::kClosed) {
    return std::unexpected(taken);
  }
  give_tuple_up(f);
  return before;
}

/// free_tcp() of one whose key is another's in the demux.
void Engine::end_tcp(TcpFlow& f) noexcept {
  forget_heard(f);
  if (corked_ == &f) forget_cork();
  if (haste_.flow == &f) haste_.flow = nullptr;
  if (owed_.flow == &f) owed_.flow = nullptr;
  if (f.is_orphan()) --orphan_count_;
  if (f.port_holder && !keep_port(f, Clock::now()) && f.port_origin == PortOrigin::kLeased)
    leases_.lost();
  strike_will(f);
  wheel_.cancel(f);
  tcp::release(f.tcb);
  flow_count_.fetch_sub(1, std::memory_order_relaxed);
  tcp_.free(f);  // its hooks unlink themselves, the rule and the port holder end
}

/// The port of a connection that ends, for the next one, if it may be kept. @return it is.
bool Engine::keep_port(TcpFlow& f, Instant now) {
  Port* const port = f.egress.port;
  const bool was_leased = f.port_origin == PortOrigin::kLeased;
  if (f.port_origin == PortOrigin::kProgram || !f.port_holder || !f.tcb.ts_on || port == nullptr ||
      port->dead || f.key.local.scope != 0)
    return false;
  if (!was_leased && !leases_.has_room()) return false;
  FlowRule rule;
  if (!port->device->caps().tags) {  // else each connection has its own, with its tag
    if (was_leased) {
      if (f.rule.device() != port->device.get()) return false;  // the route has changed since
      rule = std::move(f.rule);
    } else if (auto made =
                   steer(*port, {IpProto::kTcp, f.key.v6, VlanId(), f.key.local, {}}, FlowTag());
               made && *made) {
      rule = std::move(*made);
    } else {
      return false;
    }
  }
  leases_.keep({f.key.local, port, std::move(f.port_holder), std::move(rule), now}, was_leased);
  return true;
}

Carried<TcpFlow*> Engine::tcp_connect(const Route& route, const Endpoint& local,
                                      const Endpoint& remote, const tcp::Config& config,
                                      const IpSettings& ip, void* owner, SocketStats& stats,
                                      Instant now, const FastConnect* fast,
                                      std::optional<PortLease> lease, PortOrigin origin) {
  const FlowKey key{IpProto::kTcp, !local.addr.is_v4(), VlanId(), local, remote};
  const uint64_t secret = tcp::tuple_hash(secret_, local, remote);
  Seq32 iss = tcp::initial_sequence(secret, now);
  const auto before = take_tuple(key, origin);
  if (before && *before) iss = tcp::beyond_old_window(iss, (*before)->snd_nxt);
  TcpFlow* f = before ? new_tcp(key) : nullptr;
  if (f == nullptr) {
    if (lease) leases_.keep(std::move(*lease), true);
    return std::unexpected(before ? Refusal{Carriage::kMemory, ENOMEM, "TCP flows"}
                                  : before.error());
  }
  if (lease) {
    f->port_origin = PortOrigin::kLeased;
    f->port_holder = std::move(lease->holder);
    f->rule = std::move(lease->rule);
    stats_.leased_ports.add();
  }
  if (!f->rule) {
    // Before the SYN leaves: its answer must not reach the kernel, which would reset it.
    auto rule = steer(*route.port, key, f->tag);
    if (!rule) {
      free_tcp(*f);
      return std::unexpected(rule.error());
    }
    f->rule = std::move(*rule);
  }
  f->owner = owner;
  f->stats = &stats;
  f->egress.port = route.port;
  f->ip = ip;
  f->egress.link_mtu = route.hop.mtu;
  f->egress.mtu = ip.mtu_discover < IP_PMTUDISC_INTERFACE
                      ? pmtu_.get(remote.addr, route.hop.mtu, now)
                      : route.hop.mtu;
  f->mss_limit = config.mss;
  f->egress.ifindex = route.hop.ifindex;
  tcp::Config c = config;
  c.mss = std::min(c.mss, mss_of(f->egress.mtu, key.v6));
  c.ts_offset = tcp::timestamp_offset(secret);
  c.spread_rto = true;
  tcp::open_active(f->tcb, c, *pool_, iss, now);
  if (fast != nullptr) begin_fast_connect(*f, *fast, now);
  stats_.active_opens.add();
  write_will(*f);
  tcp_progress(*f, now);
  publish_deadline(now);
  return f;
}

// ---- the program's calls

size_t Engine::tcp_send(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept {
  if (data.size() == 1 && !more) [[likely]] {
    const iovec& v = data[0];
    if (tcp_send_lone(f, v, now)) [[likely]]
      return v.iov_len;
    settle();
    if (tcp_send_next(f, v, now)) return v.iov_len;
    if (tcp_hold(f, v)) return v.iov_len;
  }
  return tcp_queue(f, data, more, now);
}

size_t Engine::tcp_queue(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept {
  // Several pieces count as a large one; a long write's pieces are no writes that follow each
  // other.
  const size_t bytes = data.size() == 1 ? data[0].iov_len : f.tcb.mss;
  const bool is_corked = corked_ != nullptr;
  const SendBy by = is_corked || more || is_small(f.tcb, bytes) ? SendBy::kCall : SendBy::kWrite;
  const bool is_uncorked = is_corked && pass_cork(f, bytes, more, now);
  const size_t n =
      bytes > kPiece ? tcp_send_pieces(f, data[0], more, now) : send_piece(f, data, more, by, now);
  // Whatever this took, it was no pause of the program's. With each doorbell of one that only sends
  // comes a look at its ACKs: it fills the window many times sooner than by segments of its own.
  if (is_uncorked && haste_.flow == &f) {
    sent_at_poll_ = stats_.tx_bytes.get();
    poll(now);
  }
  tcp_waited(f);
  return n;
}

/// A long write leaves in pieces: each is on its way while the next is copied, and the frames that
/// the ACKs of the first have freed, which are in the cache, hold the last. A piece ends where a
/// segment does.
size_t Engine::tcp_send_pieces(TcpFlow& f, const iovec& all, bool more, Instant now) noexcept {
  const tcp::Tcb& t = f.tcb;
  size_t done = 0;
  while (done < all.iov_len && (done == 0 || tcp::can_send(t))) {
    const size_t most = std::max<size_t>(kPiece, 2 * t.mss);
    const size_t whole = most - most % t.mss - (t.snd_end - t.snd_nxt) % t.mss;
    const iovec piece{static_cast<std::byte*>(all.iov_base) + done,
                      std::min(all.iov_len - done, whole)};
    const size_t n = send_piece(f, {&piece, 1}, more, SendBy::kCall, now);
    done += n;
    if (n != piece.iov_len) break;
  }
  return done;
}

size_t Engine::send_piece(TcpFlow& f, std::span<const iovec> data, bool more, SendBy by,
                          Instant now) noexcept {
  const size_t n = tcp::append(f.tcb, data, more, now);
  if (n != 0) {
    progress(f, by, now);
    // Where a segment waits for the window, they may have opened that.
    if (has_sent_much() || tcp::unsent_bytes(f.tcb) >= f.tcb.mss) look_for_acks(f, now);
  }
  return n;
}

/// Between two sends, so that who only sends comes to poll before its buffer is full, which may be
/// megabytes later: the ACKs of what it sent free frames that are still in the cache, and nobody
/// else needs to wake for them.
[[gnu::noinline]] void Engine::look_for_acks(const TcpFlow& f, Instant now) noexcept {
  sent_at_poll_ = stats_.tx_bytes.get();
  poll_to_return(now);
  tcp_waited(f);
}

void Engine::progress(TcpFlow& f, SendBy by, Instant now) noexcept {
  if (f.pending_hook.is_linked() && tcp::may_ride(f.tcb)) return;  // its turn comes
  if (!transmit(f, by, now)) want_transmit(f);
}

void Engine::tcp_close(TcpFlow& f, UniqueFd port_holder, bool reset, Instant now) {
  if (corked_ == &f) forget_cork();
  f.owner = nullptr;
  f.stats = &spare_stats_;
  if (f.port_origin != PortOrigin::kLeased) f.port_holder = std::move(port_holder);
  f.notify_hook.unlink();
  f.gathered = Effects::kNone;
  orphans_.push_back(f);
  if (reset)
    tcp::abort(f.tcb, now);
  else
    tcp::close(f.tcb, now);
  if (++orphan_count_ > config_.max_orphans) end_surplus(f);
  tcp_progress(f, now);
  // A reset is said once, and there may be no flow left for whose sake anyone looks.
  if (answers_.open > 1 && tcp::state(f.tcb) == tcp::State::kClosed) ring_left();
  publish_deadline(now);
  orphan_effects(f, now);
}

/// One orphan more than there may be: what a program has closed must not hold memory for as long
/// as its peer likes. Reset at once, as Linux does it (tcp(7) tcp_max_orphans).
void Engine::end_surplus(TcpFlow& f) noexcept {
  const tcp::State s = tcp::state(f.tcb);
  if (s == tcp::State::kClosed || s == tcp::State::kTimeWait) return;
  (void)tcp::evict(f.tcb, 0);
}

/// A connection that the program has closed: is it over?
void Engine::orphan_effects(TcpFlow& f, Instant now) noexcept {
  if (f.pending_hook.is_linked()) return;  // still has something to say
  switch (tcp::state(f.tcb)) {
    case tcp::State::kClosed:
      free_tcp(f);
      break;
    case tcp::State::kTimeWait:
      enter_time_wait(f, now);
      break;
    default:
      break;
  }
}

uint64_t Engine::orphans_owe() const {
  uint64_t owed = 0;
  for (const TcpFlow& f : orphans_) {
    const tcp::State s = tcp::state(f.tcb);
    if (s == tcp::State::kFinWait2 || s == tcp::State::kTimeWait) continue;
    owed += 1 + f.tcb.outstanding() + f.tcb.unsent();
  }
  return owed;
}

// ---- effects of a burst

void Engine::note_effects(TcpFlow& f, Effects e) noexcept {
  if (has(e, Effects::kTransmit)) want_transmit(f);
  e &= ~Effects::kTransmit;
  if (e == Effects::kNone) return;
  f.gathered |= e;
  lull_ = 0;
  deadlines_moved_ = true;
  if (!f.notify_hook.is_linked()) notify_.push_back(f);
}

void Engine::deliver_events(Instant now) noexcept {
  while (!notify_.empty()) {
    TcpFlow& f = notify_.front();
    notify_.pop_front();
    const Effects e = std::exchange(f.gathered, Effects::kNone);
    if (f.listener != kNoListener) {
      // Not accepted yet: whatever else happened, accept() and what follows it will show.
      if (has(e, Effects::kConnected) && events_.accept != nullptr)
        events_.accept(*listeners_[f.listener]);
    } else if (f.owner != nullptr) {
      events_.tcp(f, e);
    } else {
      orphan_effects(f, now);
    }
  }
  while (!notify_udp_.empty()) {
    UdpFlow& u = notify_udp_.front();
    notify_udp_.pop_front();
    if (u.owner != nullptr) events_.udp(u);
  }
}

/// Of thousands of connections hundreds are to be looked at together, each a miss or two of the
/// cache, most of them in vain: a few with each turn, so that what a program waits for is not kept
/// up, unless time runs away.
void Engine::run_timers(Instant now) noexcept {
  const unsigned looks = wheel_.backlog() > kLongestBacklog ? kMostTimerLooks : kTimerLooks;
  wheel_.advance(now, looks, [&](WheelNode& n) {
    TcpFlow& f = static_cast<TcpFlow&>(n);
    if (const Instant due = tcp::deadline(f.tcb); due > now) [[likely]] {
      wheel_.arm(f, due);  // it has moved since the node was placed, and nothing else happens
      return;
    }
    const Effects e = tcp::on_deadline(f.tcb, now);
    if (f.tcb.fast_asked) [[unlikely]]
      watch_fast_open(f, e, now);
    note_effects(f, e);
    want_transmit(f);
    arm_timer(f);
  });
}

void Engine::arm_timer(TcpFlow& f) noexcept {
  lull_ = 0;
  deadlines_moved_ = true;
  const Instant d = tcp::deadline(f.tcb);
  wheel_.arm(f, d);
  ring_helper_before(d);  // a send by a program that then does something else
}

}  // namespace vireo
