// TCP Fast Open at a listener: a SYN with a cookie of ours becomes a connection at once, and one
// that asks for a cookie gets it with the SYN-ACK. What Linux does in tcp_try_fastopen()
// (net/ipv4/tcp_fastopen.c).
#include "stack/tcp/fast_open.h"
#include "stack/engine/engine.h"
#include "stack/wire/tcp_options.h"

namespace vireo {

/// As many as the program asked for, over all listeners, are open by their SYN alone: a spoofed
/// SYN must not cost more (RFC 7413 §5.1).
bool Engine::may_open_fast(const Listener& l) noexcept {
  std::erase_if(fast_opens_, [this](SlabHandle h) {
    const TcpFlow* const f = tcp_.get(h);
    return f == nullptr || tcp::state(f->tcb) != tcp::State::kSynReceived;
  });
  return fast_opens_.size() < l.options.fast_open;
}

/// @return true: the SYN is taken, data and all.
bool Engine::open_fast(Listener& l, const SynTuple& t, tcp::Segment& syn, Instant now) noexcept {
  if (l.options.fast_open == 0) return false;
  const wire::TcpOptions o = wire::parse_tcp_options(syn.options, true);
  const bool shown =
      o.has_fast_open && tcp::is_fast_open_cookie(secret_, t.local, t.remote, o.fast_open, now);
  const bool unasked = l.options.fast_open_without_cookie && !syn.payload.empty();
  if (!(shown || unasked) || !may_open_fast(l)) return false;
  TcpFlow* const f = new_child(l, t, now);
  if (f == nullptr) return false;
  const Seq32 iss = tcp::initial_sequence(secret_, f->key.local, f->key.remote, now);
  tcp::open_fast(f->tcb, child_config(l, t, f->egress.mtu), *pool_, std::move(syn), iss, now);
  fast_opens_.push_back(tcp_.handle(*f));
  queue_child(l, *f);
  note_effects(*f, tcp::Effects::kConnected);
  want_transmit(*f);
  return true;
}

/// Into the SYN-ACK, if the SYN had the option: a cookie for the next time.
void Engine::grant_fast_open(const Listener& l, const SynTuple& t, const tcp::Segment& syn,
                             tcp::Plan& syn_ack, Instant now) noexcept {
  if (l.options.fast_open == 0 || !wire::parse_tcp_options(syn.options, true).has_fast_open) return;
  tcp::add_fast_open(syn_ack, tcp::fast_open_cookie(secret_, t.local, t.remote, now));
}

}  // namespace vireo
