// Decides what to send: next_segment() decides and changes nothing, sent() commits.
#include "stack/tcp/output.h"

#include <algorithm>

#include "core/user_memory.h"
#include "stack/tcp/fast_path/single_segment.h"
#include "stack/tcp/recovery.h"
#include "stack/tcp/reframe.h"
#include "stack/tcp/unsent.h"

namespace vireo::tcp {

namespace {

// Plan::kind: what sent() has to commit.
enum Kind : uint8_t {
  kReset,       ///< RST of this connection
  kResetReply,  ///< RST for a segment of another connection
  kSyn,
  kAck,
  kData,
  kRetransmit,
  kProbe,
  kKeepalive,
};

/// Number of SACK blocks that fit in the options of a segment.
unsigned blocks_that_fit(const Tcb& t) { return t.ts_on ? 3 : 4; }

/// SACK blocks: the duplicate first (RFC 2883 §4), then ranges by latest arrival (RFC 2018 §4), as
/// many as fit. If several ACKs are due at once, each represents earlier segments than the next, so
/// it carries blocks for which the later ones have no room.
[[gnu::cold]] void add_blocks(const Tcb& t, Instant now, Plan& p) {
  if (!t.sack_on) return;
  wire::SackBlock blocks[5];
  unsigned n = 0;
  if (t.dsack && p.kind == kAck) blocks[n++] = {t.dsack_left, t.dsack_right};
  if (t.reassembly != nullptr) {
    const unsigned fit = blocks_that_fit(t);
    const unsigned count = t.reassembly->count();
    const unsigned later = t.acks_due > 1 ? (t.acks_due - 1U) * fit : 0;
    const Reassembly::Range* ranges[4];
    const unsigned found =
        t.reassembly->recent(ranges, std::min(later, count - std::min(count, fit)));
    for (unsigned i = 0; i < found; ++i)
      blocks[n++] = {t.rcv_seq(ranges[i]->begin), t.rcv_seq(ranges[i]->end)};
  }
  wire::TcpOptionWriter w(p.options);
  if (t.ts_on) w.timestamps(timestamp(t, now), t.ts_recent);
  w.sack({blocks, n});
  p.options_length = w.size();
}

/// Payload of the next segment of new data if it is not Tcb::mss; 0: not now.
[[gnu::cold, gnu::noinline]] uint32_t unusual_mss(Tcb& t, Instant now) {
  if (t.reassembly == nullptr) return plan_mtu_probe(t, now);
  const uint32_t mss = mss_beside_blocks(t);
  pass_on_rest(t, mss);
  return mss;
}

/// Fills in a segment in a synchronized state, except its payload.
void fill(const Tcb& t, Instant now, Kind kind, StreamOffset offset, Plan& p) {
  plan_plain(t, now, offset, p);
  if (t.ecn_ece) p.flags |= SegFlags::kEce;
  if (t.ecn_ect_all) p.ecn = wire::Ecn::kEct0;
  p.kind = kind;
  if (t.urgent_mode) [[unlikely]]
    plan_urgent(t, offset, p);
  if (t.reassembly != nullptr && kind > kAck) [[unlikely]]
    add_blocks(t, now, p);
}

/// RFC 8257 §3.2: acknowledges the data before the mark changed. The right edge of the window is
/// unchanged.
void plan_old_ack(const Tcb& t, Plan& p) {
  const uint64_t since = t.rcv_nxt - t.near_rcv_nxt(t.ecn_old_at);
  const uint64_t unit = 1ULL << t.rcv_wscale;
  p.ack = t.rcv_seq(t.near_rcv_nxt(t.ecn_old_at));
  p.window =
      static_cast<uint16_t>(std::min<uint64_t>(p.window + (since + unit - 1) / unit, UINT16_MAX));
  p.flags = t.ecn.old_ece ? SegFlags::kAck | SegFlags::kEce : SegFlags::kAck;
}

/// A bare ACK.
void plan_ack(const Tcb& t, Instant now, Plan& p) {
  fill(t, now, kAck, t.snd_nxt, p);
  if (t.ecn_old_due) [[unlikely]]
    plan_old_ack(t, p);
  else if (t.dsack || t.reassembly != nullptr)
    add_blocks(t, now, p);
}

void plan_reset(const Tcb& t, Instant now, Plan& p) {
  fill(t, now, kReset, t.snd_nxt, p);
  p.flags = SegFlags::kRst | SegFlags::kAck;
  p.window = 0;
}

void plan_reset_reply(const Tcb& t, Instant now, Plan& p) {
  fill(t, now, kResetReply, t.snd_nxt, p);
  p.options_length = 0;
  p.seq = t.reset_seq;
  p.ack = Seq32(0);
  p.flags = SegFlags::kRst;
  p.window = 0;
}

void plan_syn(Tcb& t, Instant now, Plan& p) {
  const Config& c = *t.config;
  const bool reply = t.state == State::kSynReceived;
  fill(t, now, kSyn, 0, p);
  p.flags = reply ? SegFlags::kSyn | SegFlags::kAck : SegFlags::kSyn;
  if (!reply) p.ack = Seq32(0);
  p.window = first_window(t);
  p.window = static_cast<uint16_t>(p.window - std::min<uint32_t>(p.window, t.recv_queue.bytes()));
  p.retransmission = t.snd_max > 0;
  wire::SynOptions o;
  o.mss = t.path_mss;  // RFC 6691: options are not subtracted
  o.sack_permitted = reply ? t.sack_on : c.sack;
  o.timestamps = reply ? t.ts_on : c.timestamps;
  o.ts_val = timestamp(t, now);
  o.ts_ecr = reply ? t.ts_recent : 0;
  if (reply ? t.wscale_on : c.window_scaling) o.window_scale = c.wscale;
  p.options_length = wire::emit_syn_options(p.options, o);
  if (t.fast_asked && !reply && !p.retransmission) plan_fast_open(t, p);
  ecn_mark_syn(t, reply, p);
}

/// True if the pacer delays the next segment; sets pace_at.
bool is_held(Tcb& t, Instant now) {
  if (!t.paced || t.queue.board().pacer.next() <= now) [[likely]]
    return false;
  t.queue.board().pace_at = t.queue.board().pacer.next();
  return true;
}

/// Retransmission of descriptor `index` from `at`, with the FIN if that follows it.
void plan_again(Tcb& t, uint32_t index, StreamOffset at, Instant now, Plan& p) {
  const SendDesc& d = t.queue[index];
  fill(t, now, kRetransmit, at, p);
  p.retransmission = true;
  if (d.packet == nullptr) {
    p.flags |= SegFlags::kFin;
    return;
  }
  const StreamOffset end = std::min(d.end(), t.snd_nxt);
  attach(d.packet, at - d.offset,
         static_cast<uint32_t>(std::min<uint64_t>(end - at, current_mss(t))), p);
  if (at + p.length != t.snd_end) return;
  p.flags |= SegFlags::kPsh;
  if (t.snd_nxt > t.snd_end && !t.queue[index + 1].is(kSacked)) p.flags |= SegFlags::kFin;
}

bool plan_retransmit(Tcb& t, Instant now, Plan& p) {
  if (is_held(t, now)) [[unlikely]]
    return false;
  StreamOffset at = 0;
  const uint32_t index = next_lost(t, at);
  if (!t.rtx_force) {
    const uint64_t flight = t.in_flight();
    const uint64_t length = std::min<uint64_t>(t.queue[index].end() - at, current_mss(t));
    if (flight > 0 && flight + length > t.cc.cwnd) return false;
    // Data beyond a window that the peer has shrunk waits for the timer, one segment at a time.
    if (flight > 0 && at + length > t.snd_edge) return false;
  }
  plan_again(t, index, at, now, p);
  return true;
}

/// Retransmits the last segment (RFC 8985 §7.3); a lone FIN with the data before it.
void plan_tail(Tcb& t, Instant now, Plan& p) {
  const bool partly = t.queue.has_next() && t.queue.next().offset < t.snd_nxt;
  uint32_t index = t.queue.next_index() - (partly ? 0 : 1);
  if (t.queue[index].packet == nullptr && index != t.queue.first()) --index;
  const SendDesc& d = t.queue[index];
  const StreamOffset end = std::min(d.end(), t.snd_nxt);
  const uint32_t mss = current_mss(t);
  const StreamOffset from = end > mss ? end - mss : 0;  // only a part of it may have been sent
  plan_again(t, index, std::max({from, d.offset, t.snd_una}), now, p);
}

bool plan_data(Tcb& t, Instant now, Plan& p) {
  if (is_held(t, now)) [[unlikely]]
    return false;
  const StreamOffset at = t.snd_nxt;
  if (at >= t.snd_end) {  // FIN alone
    if (t.snd_edge <= at) return false;
    fill(t, now, kData, at, p);
    p.flags |= SegFlags::kFin;
    p.retransmission = at < t.snd_max;
    return true;
  }
  uint32_t mss = t.mss;
  if (t.reassembly != nullptr || t.searches_mtu) [[unlikely]] {
    mss = unusual_mss(t, now);
    if (mss == 0) return false;
  }
  const SendDesc& d = t.queue.next();
  const uint32_t length = may_leave(t, d, at, mss, t.in_flight(), t.queue.board().snd_sml);
  if (length == 0) return false;
  fill(t, now, kData, at, p);
  attach(d.packet, at - d.offset, length, p);
  p.retransmission = at < t.snd_max;
  if (t.ecn_on) [[unlikely]]
    ecn_mark_data(t, p);
  p.flags |= tail_flags(t, at + length);
  return true;
}

/// One byte (or the FIN) beyond a closed window: the answer shows whether it opened, and if the
/// peer takes the byte that is progress (RFC 9293 §3.8.6.1).
void plan_probe(Tcb& t, Instant now, Plan& p) {
  fill(t, now, kProbe, t.snd_nxt, p);
  p.retransmission = t.snd_nxt < t.snd_max;
  if (t.snd_nxt < t.snd_end) {
    const SendDesc& d = t.queue.next();
    attach(d.packet, t.snd_nxt - d.offset, 1, p);
    if (t.snd_nxt + 1 == t.snd_end) p.flags |= SegFlags::kPsh;
  } else {
    p.flags |= SegFlags::kFin;
  }
}

[[gnu::cold, gnu::noinline]] bool next_control(Tcb& t, Instant now, Plan& p) {
  if (t.reset_due) {
    plan_reset(t, now, p);
    return true;
  }
  if (t.reset_reply) {
    plan_reset_reply(t, now, p);
    return true;
  }
  if (t.syn_due) {
    plan_syn(t, now, p);
    return true;
  }
  return false;
}

}  // namespace

void data_sent_timer(Tcb& t, Instant now) {
  if (t.rtx_timer == RtxTimer::kProbe)
    t.rtx_at = std::min(now + tlp_timeout(t, now), t.rto_at);
  else if (t.rtx_timer == RtxTimer::kNone || t.rtx_timer == RtxTimer::kPersist)
    restart_timer(t, now);
}

[[gnu::cold]] uint32_t mss_beside_blocks(const Tcb& t) {
  if (!t.sack_on) return t.mss;
  return t.mss - 4U - 8U * std::min(t.reassembly->count(), blocks_that_fit(t));
}

bool window_blocks(const Tcb& t) {
  if (t.snd_nxt >= t.snd_end) return t.fin_unsent() && t.snd_edge <= t.snd_nxt;
  const int64_t usable = static_cast<int64_t>(t.snd_edge - t.snd_nxt);
  if (usable <= 0) return true;
  const uint64_t want = std::min<uint64_t>(t.unsent(), current_mss(t));
  return static_cast<uint64_t>(usable) < want && !sws_allows(t, static_cast<uint32_t>(usable));
}

bool next_segment(Tcb& t, Instant now, Plan& p) {
  if (t.syn_due || t.reset_due || t.reset_reply) [[unlikely]]
    return next_control(t, now, p);
  if (t.state < State::kSynReceived) [[unlikely]]
    return false;
  if (t.acks_due > 0 && t.ack_bare) [[unlikely]] {
    plan_ack(t, now, p);
    return true;
  }
  if (t.state > State::kSynReceived || t.fast_open) [[likely]] {
    const bool unsent = t.snd_nxt < t.snd_end || t.fin_unsent();
    if (t.rtx_due != 0) [[unlikely]] {
      if (t.new_first && unsent && plan_data(t, now, p)) return true;
      if (plan_retransmit(t, now, p)) return true;
    } else if (unsent) {
      if (plan_data(t, now, p)) return true;
      if (t.probe_due && t.snd_edge <= t.snd_nxt) {
        plan_probe(t, now, p);
        return true;
      }
    }
    if (t.tlp_due && t.outstanding() > 0) [[unlikely]] {
      plan_tail(t, now, p);
      return true;
    }
  }
  if (t.acks_due > 0) {
    plan_ack(t, now, p);
    return true;
  }
  if (t.keep_due) [[unlikely]] {
    fill(t, now, kKeepalive, t.snd_una - 1, p);
    return true;
  }
  return false;
}

void sent(Tcb& t, const Plan& p, Instant now) {
  forget_single(t);
  ++t.segs_out;
  if (t.paced && p.length > 0) [[unlikely]]
    t.queue.board().pacer.spend(p.length, t.config->max_pacing_rate, now);
  const StreamOffset end = p.offset + p.length + (has(p.flags, SegFlags::kFin) ? 1 : 0);
  switch (p.kind) {
    case kData: {
      if (p.length > 0) [[likely]] {
        SendDesc& d = t.queue.next();
        if (p.retransmission) ++d.retransmits;
        if (d.marks != 0) [[unlikely]]
          count_more(t, d, p.length);
        if (t.searches_mtu && p.length > t.mss) [[unlikely]]
          mtu_probe_sent(t, p);
        text_sent(t, p, current_mss(t), now);
        if (has(p.flags, SegFlags::kCwr)) t.ecn_cwr_due = false;
      }
      if (has(p.flags, SegFlags::kFin)) [[unlikely]]
        fin_sent(t, now);
      sent_up_to(t, end, p);
      if (t.recovery == Recovery::kFast) [[unlikely]]
        t.queue.board().prr_out += p.length;
      if (t.tlp_due) [[unlikely]]
        tlp_sent(t, end, false);
      data_sent_timer(t, now);
      return;
    }
    case kRetransmit: {
      if (t.searches_mtu) [[unlikely]]
        settle_mtu_probe(t);
      const uint32_t index = t.queue.find(p.offset);
      const bool data = p.length > 0;
      mark_retransmitted(t, index, data ? p.offset + p.length : end, now);
      if (data && has(p.flags, SegFlags::kFin)) mark_retransmitted(t, index + 1, end, now);
      note_retransmission(t, p.offset, p.length, now);
      if (t.queue.board().joined.end != 0 && !t.tlp_due) [[unlikely]]
        jumbo_lost(t, p.offset, now);
      if (data) {
        ++t.data_segs_out;
        t.bytes_sent += p.length;
        t.bytes_retrans += p.length;
      }
      ++t.total_retrans;
      t.last_sent = now;
      t.rtx_force = false;
      if (t.tlp_due) [[unlikely]]
        tlp_sent(t, t.snd_nxt, true);
      // Retransmission of the first hole restarts the timeout (RFC 6582 §3.2, as Linux).
      if (t.rtx_timer == RtxTimer::kNone || t.rtx_timer == RtxTimer::kPersist ||
          (t.recovery == Recovery::kFast && index == t.queue.first()))
        restart_timer(t, now);
      ack_sent(t, p.window, t.rcv_wscale);
      t.acks_due = 0;
      return;
    }
    case kProbe:
      ++t.queue.next().retransmits;  // no RTT sample (Karn)
      t.snd_max = std::max(t.snd_max, end);
      t.probe_due = false;
      ack_sent(t, p.window, t.rcv_wscale);
      t.acks_due = 0;
      return;
    case kAck:
      if (t.ecn_old_due) [[unlikely]] {
        t.ecn_old_due = false;
        t.rcv_acked = t.near_rcv_nxt(t.ecn_old_at);
        return;
      }
      ack_sent(t, p.window, t.rcv_wscale);
      --t.acks_due;
      t.dsack = false;
      if (t.acks_due == 0) t.ack_bare = false;
      return;
    case kKeepalive:
      t.keep_due = false;
      ack_sent(t, p.window, t.rcv_wscale);
      return;
    case kSyn:
      t.syn_due = false;
      t.ecn.requested = has(p.flags, SegFlags::kCwr);
      if (p.retransmission) ++t.total_retrans;
      t.snd_nxt = std::max<StreamOffset>(t.snd_nxt, 1);
      if (t.syn_data) syn_data_sent(t, p, now);
      t.snd_max = std::max(t.snd_max, t.snd_nxt);
      t.last_sent = now;
      if (t.state == State::kSynReceived) ack_sent(t, p.window, 0);
      if (t.rtx_timer == RtxTimer::kNone) restart_timer(t, now);
      return;
    case kResetReply:
      t.reset_reply = false;
      return;
    case kReset:
      t.reset_due = false;
      finish(t, t.error);
      return;
    default:
      return;
  }
}

bool prepare_single(Tcb& t) {
  t.single_send = t.terse && !t.ack_bare && !t.tlp_due && t.queue.empty() && t.backoff == 0 &&
                  t.mss <= t.cc.cwnd && t.mss <= t.snd_buf &&
                  t.mss <= t.pool->frame_bytes() - PacketPool::kHeadroom && t.queue.want_ring();
  t.single_ack = t.single_send && t.snd_una != 0 && t.is_orderly() && !t.ecn_on &&
                 !t.write_blocked && t.cc.kind != CcKind::kDctcp && 2U * t.mss <= t.cc.cwnd &&
                 2U * t.mss <= t.snd_buf && 2ULL * t.cc.cwnd <= t.snd_buf && t.dupacks == 0 &&
                 t.retransmits == 0 && !t.partial_acked && !t.probe_due && !t.keep_due &&
                 !t.reset_reply;
  return t.single_send;
}

size_t append(Tcb& t, std::span<const iovec> data, bool more, Instant now) {
  forget_single(t);
  // RFC 5681 §4.1: the ACK clock stopped; restart from the initial window.
  if (t.snd_nxt == t.snd_una && now - t.last_sent > t.rtt.rto) [[unlikely]]
    cc_on_idle(t.cc, t.mss, now - t.last_sent, t.rtt.rto);
  uint32_t room = send_room(t);
  const uint32_t mss = current_mss(t);
  size_t taken = 0;
  for (const iovec& v : data) {
    const auto* src = static_cast<const std::byte*>(v.iov_base);
    size_t left = std::min<size_t>(v.iov_len, room);
    room -= static_cast<uint32_t>(left);
    while (left > 0) {
      PacketBuf* b = nullptr;
      SendDesc* d = nullptr;
      if (!t.queue.empty() && is_unsent(t, t.queue.back())) {
        d = &t.queue.back();
        b = d->packet;
      }
      const uint32_t most = fits_frame(t, mss);
      const bool is_new = b == nullptr || b->length >= most;
      const auto n = static_cast<uint32_t>(std::min<size_t>(left, most - (is_new ? 0 : b->length)));
      if (!is_readable(src, n)) [[unlikely]] {
        room = 0;
        break;
      }
      if (is_new) {
        b = t.pool->may_send(t.queue.empty()) ? t.pool->take() : nullptr;
        if (b == nullptr || !t.queue.push_back(t.snd_end, b)) [[unlikely]] {
          if (b != nullptr) PacketPool::drop(b);
          t.write_blocked = true;
          room = 0;
          break;
        }
        b->offset = t.snd_end;
        b->sum = 0;
        d = &t.queue.back();
      }
      add_text(*b, src, n);
      d->length = b->length;
      t.snd_end += n;
      src += n;
      left -= n;
      taken += n;
    }
    if (room == 0) break;
  }
  if (taken > 0) t.more = more;  // a write without room does not change it
  if ((more || t.cork) && taken > 0) {
    Instant& at = t.queue.board().cork_at;
    if (at.is_never()) at = now + Duration::ms(200);
  }
  size_t asked = 0;
  for (const iovec& v : data) asked += v.iov_len;
  if (taken < asked) t.write_blocked = true;
  if (t.snd_nxt == t.snd_una) sync_timer(t, now);
  return taken;
}

}  // namespace vireo::tcp
