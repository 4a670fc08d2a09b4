// TCP Fast Open at a listener: a SYN with a valid cookie creates a connection at once; a SYN that
// requests a cookie gets it with the SYN-ACK. As Linux's tcp_try_fastopen()
// (net/ipv4/tcp_fastopen.c).
#include "stack/engine/hub.h"
#include "stack/engine/mss.h"
#include "stack/wire/tcp_options.h"

namespace vireo {

/// At most as many connections as the program asked for are open by their SYN alone, over all
/// listeners: a spoofed SYN must not cost more (RFC 7413 §5.1).
bool PassiveOpen::may_open_fast(const Listener& l) noexcept {
  std::erase_if(fast_opens_, [this](SlabHandle h) {
    const TcpFlow* const f = hub().tcp.slab().get(h);
    return f == nullptr || tcp::state(f->tcb) != tcp::State::kSynReceived;
  });
  return fast_opens_.size() < l.options.fast_open;
}

/// The listener's keys; without any, the engine's secret. No other hash with that secret has an
/// input of so few bytes.
tcp::FastOpenKeys PassiveOpen::fast_open_keys(const Listener& l) const noexcept {
  if (l.options.fast_open_keys.count != 0) return l.options.fast_open_keys;
  return {.key = {hub().secret}, .count = 1};
}

/// @return true: the SYN and its data are accepted.
bool PassiveOpen::open_fast(Listener& l, const SynTuple& t, const Incoming& in, tcp::Segment& syn,
                            Instant now) noexcept {
  if (l.options.fast_open == 0) return false;
  const wire::TcpOptions o = wire::parse_tcp_options(syn.options, true);
  if ((!o.has_fast_open && syn.payload.empty()) || !may_open_fast(l)) return false;
  bool is_old = false;
  if (!l.options.fast_open_without_cookie) {
    const auto maker = fast_open_keys(l).maker_of(o.fast_open, t.local, t.remote);
    if (!maker) {
      if (!o.fast_open.empty()) hub().stats.fast_opens_refused.add();
      return false;
    }
    is_old = *maker != 0;
  }
  TcpFlow* const f = new_child(l, t, now);
  if (f == nullptr) return false;
  if (!make_rule(l, *f)) {
    hub().tcp.free(*f);
    return false;
  }
  const uint64_t secret = secret_of(t);
  const Seq32 iss = tcp::initial_sequence(secret, now);
  tcp::Config c = child_config(l, secret);
  c.mss = mss_within(c.mss, f->egress.mtu, f->key.v6);
  tcp::open_fast(f->tcb, c, hub().pool, std::move(syn), iss, now);
  fast_opens_.push_back(hub().tcp.slab().handle(*f));
  queue_child(l, *f);
  hub().stats.fast_opens.add();
  if (is_old) renew_fast_open(l, *f, in, now);
  hub().notifications.note(*f, tcp::Effects::kConnected);
  hub().output.want(*f);
  return true;
}

/// The backup key made the cookie: the first SYN-ACK, and no other, as on Linux, carries a new
/// cookie of the primary key.
void PassiveOpen::renew_fast_open(const Listener& l, TcpFlow& f, const Incoming& in,
                                  Instant now) noexcept {
  hub().stats.fast_opens_old_key.add();
  tcp::Plan plan;
  if (!tcp::next_segment(f.tcb, now, plan)) return;
  tcp::add_fast_open(plan, fast_open_keys(l).cookie(f.key.local.addr, f.key.remote.addr));
  if (hub().is_current(f.egress)) {
    if (!hub().output.emit(f, plan, Doorbell::kNow)) return;
  } else if (f.egress.port == &in.port) {
    hub().replies.reply(
        in,
        plan);  // the neighbour is unknown to the kernel so far; the frame came from it
  } else {
    return;
  }
  tcp::sent(f.tcb, plan, now);
}

/// Adds a cookie to the SYN-ACK, if the SYN had the option.
void PassiveOpen::grant_fast_open(const Listener& l, const SynTuple& t, const tcp::Segment& syn,
                                  tcp::Plan& syn_ack) noexcept {
  if (l.options.fast_open == 0 || !wire::parse_tcp_options(syn.options, true).has_fast_open) return;
  tcp::add_fast_open(syn_ack, fast_open_keys(l).cookie(t.local, t.remote));
}

}  // namespace vireo
