// SYN-ACKs: sent for a record or a cookie, repeated until the record ends.
#include <algorithm>

#include "core/log.h"
#include "stack/engine/hub.h"
#include "stack/engine/mss.h"
#include "stack/tcp/syn_cookie.h"

namespace vireo {
namespace {

using tcp::SynRecord;

/// Limit of SynRecord::timeouts: an hour of tries, whatever tcp_synack_retries says.
constexpr uint64_t kMaxTimeouts = 31;

/// Timeouts after which a record ends. Half of the queue is for records without a timeout: if they
/// have less, older ones get fewer tries.
uint64_t timeouts_allowed(const Listener& l) {
  uint64_t most = std::min<uint64_t>(l.config.synack_retries, kMaxTimeouts);
  if (l.syn_count * 2 <= std::max(8U, l.backlog)) return most;
  for (uint64_t young = l.young_count * 2ULL; most > 2 && l.syn_count >= young; young *= 2) --most;
  return most;
}

}  // namespace

/// Secret that a connection's initial sequence number and timestamp offset are derived from.
uint64_t PassiveOpen::secret_of(const SynTuple& t) const noexcept {
  return tcp::tuple_hash(hub().secret, {t.local, t.local_port, 0}, {t.remote, t.remote_port, 0});
}

/// Settings of a new connection: the listener's, with the tuple's timestamp clock. Does not include
/// the path's MSS.
tcp::Config PassiveOpen::child_config(const Listener& l, uint64_t secret) const noexcept {
  tcp::Config c = l.config;
  c.ts_offset = tcp::timestamp_offset(secret);
  c.spread_rto = true;
  return c;
}

Result<void> PassiveOpen::way_back(const Listener& l, const SynTuple& t, CachedRoute& e,
                                   Instant now) noexcept {
  e.asked = neighbour_asked_;
  auto ok = hub().next_hops.resolve(e, IpProto::kTcp, {t.local, t.local_port, 0},
                                    {t.remote, t.remote_port, l.options.device.value()},
                                    l.options.ip, now);
  neighbour_asked_ = e.asked;
  return ok;
}

/// Sends the SYN-ACK to a SYN. `c` is child_config()'s.
void PassiveOpen::send_syn_ack(SynRecord& r, tcp::Config& c, const Incoming& in,
                               const tcp::Segment& syn, Instant now) noexcept {
  CachedRoute e;
  const SynTuple tuple = tuple_of(r);
  const Listener& l = *listeners_[r.listener];
  const auto ok = way_back(l, tuple, e, now);
  if (e.port == nullptr) return;  // no route back, or not by a carried interface
  c.mss = mss_within(c.mss, e.mtu, !tuple.remote.is_v4());
  tcp::Plan plan;
  if (r.is_cookie) {
    tcp::plan_cookie_syn_ack(r, c, now, plan);
  } else {
    tcp::plan_syn_ack(r, c, now, plan);
    grant_fast_open(l, tuple, syn, plan);
  }
  if (ok)
    hub().replies.send(*e.port, e.header, plan);
  else if (ok.error().code == EAGAIN && e.port == &in.port)
    hub().replies.reply(
        in,
        plan);  // the neighbour is unknown to the kernel so far; the frame came from it
}

/// Retransmits the SYN-ACK. @return false: there is no route any more.
bool PassiveOpen::repeat_syn_ack(SynRecord& r, Instant now) noexcept {
  CachedRoute e;
  const SynTuple tuple = tuple_of(r);
  const Listener& l = *listeners_[r.listener];
  if (const auto ok = way_back(l, tuple, e, now); !ok) return ok.error().code == EAGAIN;
  tcp::Config c = child_config(l, secret_of(tuple));
  c.mss = mss_within(c.mss, e.mtu, !tuple.remote.is_v4());
  tcp::Plan plan;
  tcp::plan_syn_ack(r, c, now, plan);
  hub().replies.send(*e.port, e.header, plan);
  hub().stats.retransmits.add();
  return true;
}

void PassiveOpen::forget_record(SynRecord& r) noexcept {
  Listener& l = *listeners_[r.listener];
  --l.syn_count;
  if (r.timeouts == 0) --l.young_count;
  drop_rule(r);
  syns_.erase(r);
}

void PassiveOpen::expire(Instant now) noexcept {
  if (now >= leaving_until_) expire_leaving(now);
  for (unsigned i = 0; i < kExpiriesPerTurn; ++i) {
    SynRecord* const r = syns_.pop_due(now);
    if (r == nullptr) return;
    Listener& l = *listeners_[r->listener];
    const unsigned deferred = l.options.defer_accept;
    // A deferred connection whose ACK arrived is left alone until its time is nearly over; then a
    // last SYN-ACK makes the peer repeat its ACK, which completes the handshake.
    const bool is_over = r->timeouts >= timeouts_allowed(l) &&
                         (deferred == 0 || !r->acked || r->timeouts >= deferred);
    const bool must_say = deferred == 0 || !r->acked || r->timeouts + 1U >= deferred;
    if (is_over || (must_say && !repeat_syn_ack(*r, now) && !r->acked)) {
      forget_record(*r);
      continue;
    }
    if (must_say) r->is_retried = true;
    if (r->timeouts == 0) --l.young_count;
    if (r->timeouts < kMaxTimeouts) r->timeouts = (r->timeouts + 1) & kMaxTimeouts;
    syns_.schedule(*r, now);
  }
}

void PassiveOpen::warn_of_flood(const Listener& l, Instant now) noexcept {
  if (now - flood_warned_ < Duration::s(60)) return;
  flood_warned_ = now;
  log<LogLevel::kWarn>("port {}: more SYNs than the backlog of {} holds: answered by cookies",
                       l.key.local.port, l.backlog);
}

}  // namespace vireo
