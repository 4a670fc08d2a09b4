#include "tests/sim/soak_bounds.h"

#include <algorithm>
#include <cstring>

namespace vireo::sim {

using tcp::State;
using tcp::Tcb;

namespace {

/// Wheel ticks, timers left over to the next turn, and what waits for a slot of the device.
constexpr Duration kSlack = Duration::ms(100);

/// From a first timeout of `first` until the last of `retries` has had its time too: the interval
/// doubles and ends at `most` (RFC 6298 §5.5).
Duration span(Duration first, unsigned retries, Duration most) {
  Duration sum{};
  for (unsigned i = 0; i <= retries; ++i)
    sum = sum + std::min(first * (int64_t{1} << std::min(i, 30U)), most);
  return sum;
}

/// The same for a connection whose `retries` began at the backoff it had then. The tail loss probe
/// of RFC 8985 §7.2 goes before, and restarts the first interval; a repeated one is up to 5 %
/// longer.
Duration span_of(const Tcb& t, unsigned retries) {
  const unsigned before = t.backoff > t.retransmits ? t.backoff - t.retransmits : 0;
  const Duration first =
      std::min(t.rtt.rto * (int64_t{1} << std::min(before, 20U)), t.config->rto_max.get());
  return span(first, retries, t.config->rto_max) * 21 / 20 + first;
}

bool is_shut(const Tcb& t) {
  return t.rtx_timer == tcp::RtxTimer::kPersist || (t.outstanding() > 0 && t.snd_edge <= t.snd_una);
}
bool has_work(const Tcb& t) {
  return t.outstanding() > 0 || t.rtx_timer == tcp::RtxTimer::kPersist;
}
Instant heard(const Tcb& t) { return std::max(t.last_ack, t.last_received); }

struct Bound {
  const char* what;
  const char* source;
  bool (*applies)(const Seen&, const Tcb&);
  Instant (*since)(const Seen&, const Tcb&);
  Duration (*limit)(const Tcb&);
};

constexpr unsigned kOrphanRetries = 8;  // ip-sysctl: 0 stands for eight

const Bound kBounds[] = {
    {"SYN-SENT", "tcp(7) tcp_syn_retries; RFC 6298 (5.5)",
     [](const Seen& s, const Tcb&) { return s.state == State::kSynSent; },
     [](const Seen& s, const Tcb&) { return s.entered; },
     [](const Tcb& t) {
       return span(t.config->rto_initial, t.config->syn_retries, t.config->rto_max);
     }},
    {"SYN-RECEIVED, crossing SYNs", "tcp(7) tcp_synack_retries; its timer goes on from SYN-SENT",
     [](const Seen& s, const Tcb&) { return s.state == State::kSynReceived; },
     [](const Seen& s, const Tcb&) { return s.entered; },
     [](const Tcb& t) {
       return span(t.config->rto_initial, std::max(t.config->synack_retries, t.config->syn_retries),
                   t.config->rto_max);
     }},
    {"a program's data or FIN that nobody acknowledges", "tcp(7) tcp_retries2; RFC 1122 §4.2.3.5",
     [](const Seen& s, const Tcb& t) {
       return s.state >= State::kEstablished && has_work(t) && !s.closed && !is_shut(t) &&
              t.config->user_timeout == Duration{};
     },
     [](const Seen& s, const Tcb&) { return s.progressed; },
     [](const Tcb& t) { return span_of(t, t.config->retries2); }},
    {"the same with a user timeout", "tcp(7) TCP_USER_TIMEOUT; RFC 5482",
     [](const Seen& s, const Tcb& t) {
       return s.state >= State::kEstablished && has_work(t) && !s.closed && !is_shut(t) &&
              t.config->user_timeout > Duration{};
     },
     [](const Seen& s, const Tcb&) { return s.progressed; },
     [](const Tcb& t) {
       return std::max(t.config->user_timeout.get(), span_of(t, 0)) + span_of(t, 0);
     }},
    {"FIN-WAIT-1, CLOSING or LAST-ACK without a program, unacknowledged",
     "tcp(7) tcp_orphan_retries",
     [](const Seen& s, const Tcb& t) {
       return s.state >= State::kEstablished && has_work(t) && s.closed && !is_shut(t);
     },
     [](const Seen& s, const Tcb& t) {
       // Closed after more retries than an orphan has: the interval that runs is its last.
       return std::max(s.progressed, s.closed_at + t.config->rto_max - span_of(t, kOrphanRetries));
     },
     [](const Tcb& t) { return span_of(t, kOrphanRetries); }},
    {"a window shut by a peer that says nothing", "tcp(7) tcp_retries2, tcp_orphan_retries",
     [](const Seen& s, const Tcb& t) {
       return s.state >= State::kEstablished && has_work(t) && is_shut(t) &&
              t.config->user_timeout == Duration{};
     },
     [](const Seen& s, const Tcb& t) {
       return std::max(
           {heard(t), s.progressed,
            s.closed ? s.closed_at + t.config->rto_max - span_of(t, kOrphanRetries) : Instant{}});
     },
     [](const Tcb& t) { return span_of(t, t.orphan ? kOrphanRetries : t.config->retries2); }},
    {"a window shut by a peer that answers, without a program",
     "Linux tcp_probe_timer: orphans probe no more once the interval has reached its maximum",
     [](const Seen& s, const Tcb& t) {
       return s.state >= State::kEstablished && has_work(t) && is_shut(t) && s.closed;
     },
     [](const Seen& s, const Tcb& t) {
       return std::max({s.shut_at, s.closed_at, s.progressed + t.rtt.rto});
     },
     [](const Tcb& t) {
       return span(t.rtt.rto, kOrphanRetries, Duration::s(60)) + Duration::s(120);
     }},
    {"FIN-WAIT-2 without a program", "tcp(7) tcp_fin_timeout",
     [](const Seen& s, const Tcb&) { return s.state == State::kFinWait2 && s.closed; },
     [](const Seen& s, const Tcb&) { return std::max(s.entered, s.closed_at); },
     [](const Tcb& t) { return t.config->fin_timeout.get(); }},
    {"CLOSE-WAIT without a program", "RFC 9293 §3.10.4: CLOSE makes it LAST-ACK",
     [](const Seen& s, const Tcb&) { return s.state == State::kCloseWait && s.closed; },
     [](const Seen& s, const Tcb&) { return s.closed_at; }, [](const Tcb&) { return Duration{}; }},
    {"TIME-WAIT that its program has not closed", "RFC 9293 §3.6.1; 2 MSL as Linux, 60 s",
     [](const Seen& s, const Tcb&) { return s.state == State::kTimeWait; },
     [](const Seen&, const Tcb& t) { return t.life_at - Duration::s(60); },
     [](const Tcb&) { return Duration::s(60); }},
    {"an idle peer that answers no keepalive", "tcp(7) tcp_keepalive_time, _intvl, _probes",
     [](const Seen& s, const Tcb& t) {
       return s.state >= State::kEstablished && s.state < State::kTimeWait && t.config->keepalive &&
              !s.closed && !has_work(t) && t.unsent() == 0 && !t.reset_due;
     },
     [](const Seen& s, const Tcb& t) { return std::max(heard(t), s.progressed); },
     [](const Tcb& t) {
       // What was unacknowledged when the idle time was over gets another.
       return t.config->keep_idle.get() * 2 +
              t.config->keep_interval.get() * int64_t{t.config->keep_count} +
              t.config->user_timeout.get();
     }},
    {"a connection that is over and closed", "RFC 9293 §3.3.2: it is no more",
     [](const Seen& s, const Tcb&) { return s.state == State::kClosed && s.closed; },
     [](const Seen& s, const Tcb&) { return std::max(s.entered, s.closed_at); },
     [](const Tcb&) { return Duration{}; }},
    {"a reset that is to be sent", "RFC 9293 §3.10.5: at once",
     [](const Seen&, const Tcb& t) { return t.reset_due; },
     [](const Seen& s, const Tcb&) { return std::max(s.entered, s.progressed); },
     [](const Tcb&) { return Duration::ms(500); }},
};

/// A record's own retries, and the SYNs of its peer, each of which starts an interval anew.
Duration half_open_bound() {
  const tcp::Config c;
  return span(Duration::s(1), c.synack_retries, Duration::s(120)) +
         span(c.rto_initial, c.syn_retries, c.rto_max);
}

std::string tell(const TcpFlow& f, const char* what, const char* source, Duration for_,
                 Duration limit) {
  const Tcb& t = f.tcb;
  std::string s = std::string(what) + " (" + name(t.state) + ", port " +
                  std::to_string(f.key.local.port) + " to " + std::to_string(f.key.remote.port) +
                  ") for " + std::to_string(for_.ms()) + " ms, the bound is " +
                  std::to_string(limit.ms()) + " ms by " + source;
  s += "; una " + std::to_string(t.snd_una) + " nxt " + std::to_string(t.snd_nxt) + " end " +
       std::to_string(t.snd_end) + " edge " + std::to_string(t.snd_edge) + " rto " +
       std::to_string(t.rtt.rto.ms()) + " backoff " + std::to_string(t.backoff) + " retransmits " +
       std::to_string(t.retransmits) + " timer " + std::to_string(static_cast<int>(t.rtx_timer));
  return s;
}

}  // namespace

const char* name(State s) {
  static constexpr const char* kNames[] = {
      "CLOSED",     "SYN-SENT",   "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1",
      "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING",      "LAST-ACK",    "TIME-WAIT"};
  return kNames[static_cast<size_t>(s)];
}

std::string BoundsWatch::look(TcpFlow& f, Instant now) {
  Tcb& t = f.tcb;
  const size_t tag = f.tag.value();
  if (tag >= seen_.size()) seen_.resize(tag + 1);
  Seen& s = seen_[tag];
  const uint64_t life =
      uint64_t{t.iss.value()} << 32 | uint32_t{f.key.local.port} << 16 | f.key.remote.port;
  const bool is_new = s.life != life;
  if (is_new) {
    s = {};
    s.life = life;
  }
  const bool closed = f.owner == nullptr && f.listener == kNoListener;
  if (is_new || s.state != t.state) s.entered = now;
  if (is_new || (closed && !s.closed)) s.closed_at = now;
  if (is_new || s.una != t.snd_una || s.edge != t.snd_edge || !has_work(t)) s.progressed = now;
  if (is_new || !is_shut(t)) s.shut_at = now;
  s.state = t.state;
  s.closed = closed;
  s.una = t.snd_una;
  s.edge = t.snd_edge;
  longest_[s.state] = std::max(longest_[s.state], now - s.entered);
  for (const Bound& b : kBounds) {
    if (!b.applies(s, t)) continue;
    const Duration for_ = now - b.since(s, t), limit = b.limit(t);
    if (for_ > limit + kSlack) return tell(f, b.what, b.source, for_, limit);
  }
  if ((f.owner == nullptr) != f.unowned_hook.is_linked()) return "a connection that nobody owns";
  if (looks_ % 16 == 0) {
    fuzz::check(t, s.watch);
    if (!f.pending_hook.is_linked()) fuzz::check_idle(t);
  }
  return {};
}

std::string BoundsWatch::look(Engine& e, Instant now) {
  ++looks_;
  std::string wrong;
  const auto note = [&](std::string s) {
    if (wrong.empty()) wrong = std::move(s);
  };
  e.tcp().for_each([&](TcpFlow& f) { note(look(f, now)); });
  auto before = std::exchange(half_open_, {});
  e.listeners().for_each_half_open([&](tcp::SynRecord& r) {
    std::vector<uint8_t> key(r.remote.bytes().begin(), r.remote.bytes().end());
    for (const uint16_t port : {r.remote_port, r.local_port})
      key.insert(key.end(), {static_cast<uint8_t>(port >> 8), static_cast<uint8_t>(port)});
    const auto was = before.find(key);
    const bool is_new = was == before.end() || was->second.first != r.iss.value();
    const Instant since = is_new ? now : was->second.second;
    half_open_[key] = {r.iss.value(), since};
    if (now - since > half_open_bound() + kSlack)
      note("SYN-RECEIVED, port " + std::to_string(r.remote_port) + " to " +
           std::to_string(r.local_port) + ": for " + std::to_string((now - since).ms()) +
           " ms, tcp(7) tcp_synack_retries");
  });
  e.for_each_time_wait([&](const DemuxKey& k, Instant until) {
    if (until > now + Duration::s(60) || now > until + kSlack)
      note("TIME-WAIT of port " + std::to_string(k.local_port) + " ends in " +
           std::to_string((until - now).ms()) + " ms; RFC 9293 §3.6.1: in 60 s at most");
  });
  return wrong;
}

}  // namespace vireo::sim
