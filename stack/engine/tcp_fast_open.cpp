// TCP Fast Open of active opens: whether the SYN may carry data, what the SYN-ACK tells, and when
// to stop using it. As Linux's tcp_fastopen_cookie_check(), tcp_fastopen_defer_connect() and
// tcp_fastopen_active_detect_blackhole() (net/ipv4/tcp_fastopen.c).
#include <cerrno>

#include "stack/engine/hub.h"
#include "stack/wire/tcp_options.h"

namespace vireo {

/// A new connection: the SYN waits for data if it may carry some, else it requests a cookie.
void TcpFlows::begin_fast_connect(TcpFlow& f, const FastConnect& wish, Instant now) {
  if (fast_open_client_ == nullptr)
    fast_open_client_ = std::make_unique<FastOpenClient>(FlowHashKey::random());
  const bool paused = fast_open_client_->is_paused(wish.pause, now);
  const bool may_have_data =
      !paused && (wish.without_cookie ||
                  fast_open_client_->find(f.key.local.addr, f.key.remote.addr) != nullptr);
  if (wish.data_follows || may_have_data)
    tcp::defer_syn(f.tcb);
  else if (!paused)
    tcp::begin_fast_open(f.tcb, {}, now);
}

size_t TcpFlows::send_syn(TcpFlow& f, const FastConnect& wish, std::span<const iovec> data,
                          Instant now) noexcept {
  size_t taken = 0;
  if (fast_open_client_->is_paused(wish.pause, now)) {
    tcp::let_syn_go(f.tcb, now);
  } else {
    const FastOpenClient::Server* const s =
        fast_open_client_->find(f.key.local.addr, f.key.remote.addr);
    tcp::SynData d{.cookie = {},
                   .without_cookie = wish.without_cookie,
                   .peer_mss = f.tcb.path_mss,  // if the server's own is unknown, as Linux
                   .data = data};
    if (s != nullptr) {
      d.cookie = s->bytes_of_cookie();
      d.peer_mss = s->mss;
    }
    taken = tcp::begin_fast_open(f.tcb, d, now);
  }
  progress(f, now);
  hub().turn.publish_deadline(now);
  return taken;
}

/// The SYN-ACK to our SYN, before TCP handles it: stores cookie and MSS for later connections, or
/// notes that data on a SYN does not get through (RFC 7413 §4.1.3, §4.1.3.1).
void TcpFlows::hear_syn_ack(const TcpFlow& f, const tcp::Segment& s) noexcept {
  const tcp::Tcb& t = f.tcb;
  if (!t.fast_asked || t.state != tcp::State::kSynSent || !has(s.flags, tcp::SegFlags::kAck) ||
      has(s.flags, tcp::SegFlags::kRst))
    return;
  const int32_t acked = s.ack - t.iss;
  if (acked <= 0 || static_cast<uint64_t>(acked) > t.snd_max) return;
  const wire::TcpOptions o = wire::parse_tcp_options(s.options, true);
  const bool took_data = acked > 1;
  if (took_data) fast_open_client_->works();
  const uint16_t mss = o.has_mss ? o.mss : tcp::kDefaultMss;
  if (o.has_fast_open && !o.fast_open.empty())
    fast_open_client_->learn(f.key.local.addr, f.key.remote.addr, o.fast_open, mss);
  else if (t.syn_data && t.syn_retried && !took_data)
    fast_open_client_->forget(f.key.local.addr, f.key.remote.addr);
  else
    fast_open_client_->learn_mss(f.key.local.addr, f.key.remote.addr, mss);
}

/// A timer of a Fast Open connection fired: after the third consecutive timeout, or if the
/// connection failed, Fast Open is disabled for a while.
void TcpFlows::watch_fast_open(TcpFlow& f, tcp::Effects e, Instant now) noexcept {
  const tcp::Tcb& t = f.tcb;
  if (t.rtx_timer == tcp::RtxTimer::kPersist) return;
  const bool expired = has(e, tcp::Effects::kError) && tcp::error(t) == ETIMEDOUT;
  if (t.retransmits != 3 && !(expired && t.retransmits < 3)) return;
  fast_open_client_->pause(now);
  tcp::end_fast_open(f.tcb);
}

}  // namespace vireo
