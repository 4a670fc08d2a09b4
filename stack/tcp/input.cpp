// SEGMENT ARRIVES, RFC 9293 §3.10.7: one function per numbered step, in its order.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "stack/tcp/fast_path/predicted.h"
#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

namespace {

/// A segment that is being processed. `left`: distance of its first byte from rcv_nxt.
struct Arrival {
  Segment& s;
  wire::TcpOptions options;
  Instant now;
  int32_t left = 0;
  bool fin = false;
  bool bare = false;    ///< arrived without data and FIN
  bool recent = false;  ///< RFC 7323 §4.3: its timestamp becomes TS.Recent if its ACK is acceptable
  Effects effects = Effects::kNone;

  uint32_t length() const { return s.payload.bytes(); }
  bool is(SegFlags f) const { return has(s.flags, f); }
};

enum class Next : bool { kDrop, kGoOn };

/// The advertised receive window.
uint32_t advertised(const Tcb& t) {
  return static_cast<uint32_t>(t.rcv_adv > t.rcv_nxt ? t.rcv_adv - t.rcv_nxt : 0);
}

/// RFC 7323 §5.3 R1, before the sequence check; RSTs are exempt.
Next check_paws(Tcb& t, Arrival& a) {
  if (!t.ts_on || !a.options.has_timestamps || a.is(SegFlags::kRst)) return Next::kGoOn;
  const bool old = static_cast<int32_t>(a.options.ts_val - t.ts_recent) < 0;
  if (!old || seconds(a.now) - t.ts_recent_s > kPawsIdle) return Next::kGoOn;
  if (a.length() > 0)
    ack_now(t, true);
  else
    challenge_ack(t, a.now);
  return Next::kDrop;
}

/// RFC 7323 §4.3 (2): starts at or before Last.ACK.sent. Call before trimming.
bool is_recent(const Tcb& t, const Arrival& a) {
  if (!t.ts_on || !a.options.has_timestamps || a.is(SegFlags::kRst)) return false;
  return a.left <= static_cast<int64_t>(t.rcv_acked - t.rcv_nxt);
}

/// First: sequence number. Trims data outside the window.
Next step1_sequence(Tcb& t, Arrival& a) {
  const uint32_t window = advertised(t);
  const auto length = static_cast<int32_t>(a.length()) + (a.fin ? 1 : 0);
  // A segment that ends at rcv_nxt is old, but its ACK is processed (as in Linux's tcp_sequence).
  // If window probes cross and both sides accept them, every later segment starts one byte too
  // early, and each side would otherwise ignore the other.
  const bool acceptable =
      a.left >= 0 ? static_cast<uint32_t>(a.left) <= window : length > 0 && a.left + length >= 0;
  if (!acceptable) {
    if (a.is(SegFlags::kRst)) return Next::kDrop;
    if (a.is(SegFlags::kSyn)) {  // RFC 5961 §4: in any synchronized state
      challenge_ack(t, a.now);
      return Next::kDrop;
    }
    if (a.left < 0 && a.length() > 0) {
      note_duplicate(t, a.s.seq, a.s.seq + a.length());
      ack_now(t, true);
    } else if (a.left < 0 && a.fin) {
      ack_now(t, true);
    } else {
      challenge_ack(t, a.now);
    }
    return Next::kDrop;
  }
  a.recent = is_recent(t, a);
  if (a.is(SegFlags::kRst) || a.is(SegFlags::kSyn)) return Next::kGoOn;
  if (a.left < 0) {
    const uint32_t cut = std::min(static_cast<uint32_t>(-a.left), a.length());
    if (cut > 0) {
      note_duplicate(t, a.s.seq, a.s.seq + cut);
      ack_now(t, true);
    }
    a.s.payload.trim_front(cut);
    if (a.left + length == 0 && a.fin) {  // its FIN is before rcv_nxt
      a.fin = false;
      ack_now(t, true);
    }
    a.left = 0;
  }
  const uint64_t end = static_cast<uint64_t>(a.left) + a.length();
  if (end > window) {
    const auto over = static_cast<uint32_t>(std::min<uint64_t>(end - window, a.length()));
    a.s.payload.trim_back(over);
    a.fin = false;
    ack_now(t, true);
  }
  return Next::kGoOn;
}

/// Second: RST, by RFC 5961 §3.2.
Next step2_reset(Tcb& t, Arrival& a) {
  if (!a.is(SegFlags::kRst)) return Next::kGoOn;
  if (a.s.seq != t.rcv_seq(t.rcv_nxt)) {
    challenge_ack(t, a.now);
    return Next::kDrop;
  }
  switch (t.state) {
    case State::kTimeWait:  // RFC 1337: an RST does not end TIME-WAIT
      return Next::kDrop;
    case State::kClosing:
    case State::kLastAck:
      a.effects |= finish(t, 0);
      return Next::kDrop;
    case State::kSynReceived:
      a.effects |= finish(t, t.fast_open ? ECONNRESET : ECONNREFUSED);
      return Next::kDrop;
    case State::kCloseWait:
      a.effects |= finish(t, EPIPE);  // as Linux
      return Next::kDrop;
    default:
      a.effects |= finish(t, ECONNRESET);
      return Next::kDrop;
  }
}

/// Fourth: SYN in a synchronized state, RFC 5961 §4.2. (RFC 9293 leaves out the third, security.)
Next step4_syn(Tcb& t, Arrival& a) {
  if (!a.is(SegFlags::kSyn)) return Next::kGoOn;
  challenge_ack(t, a.now);
  return Next::kDrop;
}

/// Window update, RFC 9293 §3.10.7.4 step five.
void update_window(Tcb& t, const Arrival& a, StreamOffset ack) {
  const bool newer =
      t.snd_wl1.before(a.s.seq) || (t.snd_wl1 == a.s.seq && t.snd_wl2.at_or_before(a.s.ack));
  if (!newer) return;
  const uint32_t window = static_cast<uint32_t>(a.s.window) << t.snd_wscale;
  const bool was_shut = t.snd_edge == t.snd_offset(t.snd_wl2);
  t.snd_edge = ack + window;
  t.snd_wl1 = a.s.seq;
  t.snd_wl2 = a.s.ack;
  t.max_wnd = std::max(t.max_wnd, window);
  if (!was_shut || window == 0 || t.backoff == 0 || t.outstanding() == 0) return;
  // Retransmissions into a closed window were in effect window probes: with an open window they
  // would have been acknowledged. Their number is not evidence about the path (RFC 9293 §3.8.6.1).
  t.backoff = 0;
  restart_timer(t, a.now);
}

/// Our FIN was acknowledged: changes the state.
Next fin_acknowledged(Tcb& t, Arrival& a) {
  switch (t.state) {
    case State::kFinWait1:
      t.state = State::kFinWait2;
      if (!t.orphan) return Next::kGoOn;
      if (t.config->fin_timeout < Duration{}) {  // TCP_LINGER2 below zero
        a.effects |= finish(t, 0);
        return Next::kDrop;
      }
      t.life_at = a.now + t.config->fin_timeout;
      return Next::kGoOn;
    case State::kClosing:
      enter_time_wait(t, a.now);
      a.effects |= Effects::kClosed;
      return Next::kGoOn;
    case State::kLastAck:
      a.effects |= finish(t, 0);
      return Next::kDrop;
    default:
      return Next::kGoOn;
  }
}

/// Fifth: ACK.
Next step5_ack(Tcb& t, Arrival& a) {
  if (!a.is(SegFlags::kAck)) return Next::kDrop;
  const int32_t ahead = a.s.ack - t.snd_seq(t.snd_una);
  const auto sent = static_cast<int64_t>(t.snd_max - t.snd_una);
  if (t.state == State::kSynReceived) {
    if (ahead <= 0 || ahead > sent) {
      t.reset_reply = true;
      t.reset_seq = a.s.ack;
      return Next::kDrop;
    }
    t.snd_wl1 = a.s.seq;
    t.snd_wl2 = a.s.ack;
    const uint32_t window = static_cast<uint32_t>(a.s.window) << t.snd_wscale;
    t.max_wnd = window;
    establish(t, a.now);
    a.effects |= Effects::kConnected | Effects::kWritable;
  }
  if (ahead > sent || ahead < -static_cast<int64_t>(t.max_wnd)) {  // RFC 5961 §5.2
    challenge_ack(t, a.now);
    return Next::kDrop;
  }
  if (a.recent) {  // not earlier: a blind attacker could make PAWS drop the peer's data; as Linux
    t.ts_recent = a.options.ts_val;
    t.ts_recent_s = seconds(a.now);
  }
  t.last_ack = a.now;
  const StreamOffset ack = t.snd_offset(a.s.ack);
  if (ahead >= 0) {
    t.ecn_echo = t.ecn_on && a.is(SegFlags::kEce);
    const StreamOffset edge = t.snd_edge;
    if (ahead == 0) update_window(t, a, ack);
    const wire::TcpOptions& o = a.options;
    a.effects |= on_ack(t, {.ack = ack,
                            .sack = std::span(o.sack).first(t.sack_on ? o.sack_count : 0),
                            .has_ts = o.has_timestamps,
                            .ts_echo = o.ts_ecr,
                            .duplicate = ahead == 0 && a.bare && edge == t.snd_edge,
                            .now = a.now});
    t.ecn_echo = false;
    if (ahead > 0) update_window(t, a, ack);
  }
  if (t.snd_una > t.snd_end) return fin_acknowledged(t, a);
  return Next::kGoOn;
}

/// Sixth: URG. The pointer points behind the urgent byte, as all implementations send it; zero
/// means the segment's first byte (RFC 6093 §3.1; Linux).
void step6_urgent(Tcb& t, Arrival& a) {
  if (a.is(SegFlags::kUrg) && !t.peer_fin && t.state >= State::kEstablished) [[unlikely]] {
    const int32_t first = a.s.seq - t.rcv_seq(t.rcv_nxt);  // before trimming
    const int32_t pointer = a.s.urgent == 0 ? 0 : a.s.urgent - 1;
    a.effects |= note_urgent(t, static_cast<int64_t>(t.rcv_nxt) + first + pointer);
  }
  if (t.urgent == Urgent::kAwaited) [[unlikely]]
    a.effects |= look_for_urgent(t, t.rcv_nxt + static_cast<uint32_t>(a.left), a.s.payload);
}

/// Seventh: segment text.
Next step7_text(Tcb& t, Arrival& a) {
  if (a.length() == 0) return Next::kGoOn;
  if (t.state != State::kEstablished && t.state != State::kFinWait1 && t.state != State::kFinWait2)
    return Next::kGoOn;  // no data after the peer's FIN
  if (t.orphan) {        // the program has closed it (RFC 2525 §2.17)
    a.effects |= reset(t, 0);
    return Next::kDrop;
  }
  if (t.fin_seen) {  // drop data beyond the peer's FIN
    const StreamOffset end = t.rcv_nxt + static_cast<uint32_t>(a.left) + a.length();
    const StreamOffset fin = t.near_rcv_nxt(t.fin_at);
    if (end > fin)
      a.s.payload.trim_back(static_cast<uint32_t>(std::min<uint64_t>(end - fin, a.length())));
    if (a.length() == 0) {
      ack_now(t, true);
      return Next::kGoOn;
    }
  }
  ++t.data_segs_in;
  t.last_received = a.now;
  if (t.ecn_on) ecn_on_data(t, a.s);
  if (t.ts_on && a.options.has_timestamps && a.options.ts_ecr != t.tuning.echo)
    measure_by_echo(t, a.options.ts_ecr, a.now);
  // For merged segments, the mean: the size of a full segment decides when an ACK is due (RFC 9293
  // §3.8.6.3), which is counted in bytes.
  const uint32_t length = (a.length() + a.s.segments - 1) / a.s.segments;
  if (length > t.rcv_mss) t.rcv_mss = static_cast<uint16_t>(std::min<uint32_t>(length, t.path_mss));
  if (a.left == 0) {
    const StreamOffset before = t.rcv_nxt;
    accept_data(t, std::move(a.s.payload), a.now);
    if (t.rcv_nxt != before) a.effects |= Effects::kReadable;
    return Next::kGoOn;
  }
  const StreamOffset at = t.rcv_nxt + static_cast<uint32_t>(a.left);
  ++t.rcv_ooopack;
  if (t.reassembly == nullptr) t.reassembly.reset(new (std::nothrow) Reassembly);
  if (t.reassembly != nullptr) {
    const uint32_t frame = t.pool->frame_bytes();
    const uint64_t pinned =
        (uint64_t{t.recv_queue.buffers()} + t.reassembly->buffers() + a.s.payload.buffers()) *
        frame;
    // Not beyond twice the buffer in frames, nor into the last quarter of the pool: the new segment
    // is dropped, held data stays.
    if (pinned <= 2ULL * t.rcv_buf && t.pool->free_count() >= t.pool->size() / 4) {
      const auto r = t.reassembly->insert(at, std::move(a.s.payload), pinned > t.rcv_buf);
      if (r.duplicate) note_duplicate(t, t.rcv_seq(r.dup_begin), t.rcv_seq(r.dup_end));
    }
    if (t.reassembly->empty()) t.reassembly.reset();
  }
  ack_now(t, true);
  return Next::kGoOn;
}

/// Eighth: FIN. An out-of-order FIN is kept until the hole before it is filled. `acked`: the
/// segment's data has already caused an ACK (a second one would count as another duplicate).
void step8_fin(Tcb& t, Arrival& a, StreamOffset fin_at, bool acked) {
  const bool contradicted = t.reassembly != nullptr && t.reassembly->last_end() > fin_at;
  if (a.fin && !t.peer_fin && !t.fin_seen && !contradicted) {
    t.fin_seen = true;
    t.fin_at = static_cast<uint32_t>(fin_at);
  }
  if (!t.fin_seen || t.peer_fin || static_cast<uint32_t>(t.rcv_nxt) != t.fin_at) {
    if (a.fin && !acked) ack_now(t, true);
    return;
  }
  t.peer_fin = true;
  t.reassembly.reset();  // nothing can follow
  t.rcv_nxt += 1;
  t.rcv_adv = std::max(t.rcv_adv, t.rcv_nxt);
  ack_now(t, false);
  a.effects |= Effects::kPeerClosed;
  switch (t.state) {
    case State::kSynReceived:
    case State::kEstablished:
      t.state = State::kCloseWait;
      break;
    case State::kFinWait1:
      t.state = State::kClosing;
      break;
    case State::kFinWait2:
      enter_time_wait(t, a.now);
      a.effects |= Effects::kClosed;
      break;
    default:
      break;
  }
}

/// RFC 7413 §4.2.1: the SYN-ACK may acknowledge all data, part of it or the SYN alone; in the first
/// case it may carry data.
Effects syn_data_answered(Tcb& t, Arrival& a) {
  t.fast_open = t.outstanding() == 0;
  if (!t.fast_open) {
    take_back_syn_data(t);
    return Effects::kNone;
  }
  if (a.length() > advertised(t)) a.s.payload.trim_back(a.length() - advertised(t));
  if (a.length() == 0) return Effects::kNone;
  ++t.data_segs_in;
  t.last_received = a.now;
  accept_data(t, std::move(a.s.payload), a.now);
  return Effects::kReadable;
}

/// Delay of one retransmission of the SYN after the ACK of an older connection with these ports.
/// Our RST has ended that connection; if it is in TIME-WAIT, it ignores the RST (RFC 1337) but
/// accepts a SYN with a later timestamp (RFC 6191), of a 1 ms clock. As Linux,
/// tcp_rcv_synsent_state_process().
constexpr Duration kSynAgain = Duration::ms(2);

/// §3.10.7.3.
Effects in_syn_sent(Tcb& t, Arrival& a) {
  Segment& s = a.s;
  bool acked = false;
  if (a.is(SegFlags::kAck)) {
    const int32_t ahead = s.ack - t.iss;
    if (ahead <= 0 || static_cast<uint64_t>(ahead) > t.snd_max) {
      if (a.is(SegFlags::kRst)) return Effects::kNone;
      t.reset_reply = true;
      t.reset_seq = s.ack;
      if (t.retransmits == 0) t.rtx_at = t.rto_at = std::min(t.rto_at, a.now + kSynAgain);
      return Effects::kTransmit;
    }
    acked = true;
  }
  if (a.is(SegFlags::kRst)) return acked ? finish(t, ECONNREFUSED) : Effects::kNone;
  if (!a.is(SegFlags::kSyn)) return Effects::kNone;
  adopt_syn(t, s, a.options, a.now);
  if (!acked) {  // simultaneous open
    if (t.syn_data) take_back_syn_data(t);
    t.state = State::kSynReceived;
    t.syn_due = true;
    return Effects::kTransmit;
  }
  t.snd_wl2 = s.ack;
  t.last_ack = a.now;
  Effects e = on_ack(t, {.ack = static_cast<StreamOffset>(s.ack - t.iss),
                         .sack = {},
                         .has_ts = a.options.has_timestamps,
                         .ts_echo = a.options.ts_ecr,
                         .duplicate = false,
                         .now = a.now});
  establish(t, a.now);
  t.snd_edge = t.snd_una + s.window;  // the window of a SYN is never scaled
  t.max_wnd = s.window;
  ack_now(t, false);
  if (t.syn_data) e |= syn_data_answered(t, a);
  return e | Effects::kConnected | Effects::kWritable | Effects::kTransmit;
}

/// The SYN again in SYN_RECEIVED: our SYN-ACK was lost, or both sides opened (RFC 9293 figure 8).
/// @return true if `a` is done.
bool repeated_syn(Tcb& t, Arrival& a) {
  if (t.state != State::kSynReceived || !a.is(SegFlags::kSyn) || a.is(SegFlags::kRst) ||
      a.s.seq != t.irs)
    return false;
  if (!a.is(SegFlags::kAck)) {
    t.syn_due = true;
    return true;
  }
  if (a.s.ack != t.snd_seq(t.snd_max)) return false;
  // The SYN-ACK of a simultaneous open: process its ACK, and acknowledge it, since our own SYN-ACK
  // may be lost.
  a.s.flags &= ~SegFlags::kSyn;
  a.s.seq += 1;
  a.s.payload.clear();
  a.fin = false;
  a.left = 0;
  const uint8_t shift = std::exchange(t.snd_wscale, uint8_t{0});
  t.last_ack = a.now;
  step5_ack(t, a);
  t.snd_wscale = shift;
  ack_now(t, false);
  return true;
}

Effects walk(Tcb& t, Segment& s, Instant now) {
  Arrival a{.s = s,
            .options = wire::parse_tcp_options(s.options, has(s.flags, SegFlags::kSyn)),
            .now = now};
  ++t.segs_in;
  a.fin = a.is(SegFlags::kFin);
  a.bare = a.length() == 0 && !a.fin;
  if (t.state == State::kSynSent) return in_syn_sent(t, a);
  t.keep_probes = 0;
  a.left = s.seq - t.rcv_seq(t.rcv_nxt);
  if (t.state == State::kTimeWait && a.fin) t.life_at = now + kTimeWaitLength;
  if (repeated_syn(t, a)) return a.effects;
  if (check_paws(t, a) == Next::kDrop) return a.effects;
  if (step1_sequence(t, a) == Next::kDrop) return a.effects;
  if (step2_reset(t, a) == Next::kDrop) return a.effects;
  if (step4_syn(t, a) == Next::kDrop) return a.effects;
  if (step5_ack(t, a) == Next::kDrop) return a.effects;
  const StreamOffset fin_at = t.rcv_nxt + static_cast<uint32_t>(a.left) + a.length();
  const bool text = a.length() > 0;
  step6_urgent(t, a);
  if (step7_text(t, a) == Next::kDrop) return a.effects;
  if (a.fin || t.fin_seen) step8_fin(t, a, fin_at, text);
  return a.effects;
}

}  // namespace

void accept_data(Tcb& t, PacketChain data, Instant now) {
  const auto deliver = [&t](PacketChain&& d) {
    const uint64_t pinned = uint64_t{t.recv_queue.buffers()} * t.pool->frame_bytes();
    t.rcv_nxt += d.bytes();
    append_chain(t.recv_queue, std::move(d), pinned > t.rcv_buf);
  };
  if (t.reassembly == nullptr) {
    deliver(std::move(data));
    schedule_ack(t, now);
    return;
  }
  Reassembly& r = *t.reassembly;
  while (!data.empty() || (!r.empty() && r.first_begin() <= t.rcv_nxt)) {
    if (r.empty() || r.first_begin() >= t.rcv_nxt + data.bytes()) {
      deliver(std::move(data));
    } else if (r.first_begin() > t.rcv_nxt) {
      deliver(split_front(data, static_cast<uint32_t>(r.first_begin() - t.rcv_nxt)));
    }
    if (!r.empty() && r.first_begin() == t.rcv_nxt) {
      PacketChain held = r.pop_first();
      data.trim_front(std::min(held.bytes(), data.bytes()));  // the first copy wins
      deliver(std::move(held));
    }
  }
  if (r.empty()) t.reassembly.reset();
  ack_now(t, t.reassembly != nullptr);  // a gap was filled, at least in part: RFC 5681 §4.2
}

Effects input(Tcb& t, Segment&& s, Instant now) {
  if (t.predictable && s.segments == 1) [[likely]] {
    if (const auto e = input_predicted(t, s, now)) [[likely]]
      return *e;
  }
  if (t.state == State::kClosed || t.reset_due) return Effects::kNone;
  Effects e = walk(t, s, now);
  if (t.state != State::kClosed && !t.reset_due) sync_timer(t, now);
  refresh_prediction(t);
  return e | transmit_wish(t);
}

}  // namespace vireo::tcp
