#include "tests/fuzz/tcp/invariants.h"

#include <algorithm>

#include "core/checksum.h"
#include "tests/fuzz/tcp/bytes.h"

namespace vireo::fuzz {

using tcp::Plan;
using tcp::RtxTimer;
using tcp::SegFlags;
using tcp::State;
using tcp::Tcb;

namespace {

void check_timers(const Tcb& t) {
  const bool persist = t.rtx_timer == RtxTimer::kPersist;
  const bool loss = t.rtx_timer != RtxTimer::kNone && !persist;
  if (t.outstanding() > 0) {
    require(loss, "outstanding data without a timer against its loss");
  } else {
    require(!loss, "a timer against loss with nothing outstanding");
  }
  if (persist) require(t.unsent() > 0 || t.fin_unsent(), "a persist timer with nothing to send");
  require((t.rtx_timer == RtxTimer::kNone) == t.rtx_at.is_never(),
          "timer kind and deadline differ");
}

void check_send_queue(Tcb& t) {
  tcp::SendQueue& q = t.queue;
  StreamOffset at = 0;
  for (uint32_t i = 0; i < q.count(); ++i) {
    const tcp::SendDesc& d = q.at(i);
    require(d.length > 0, "an empty descriptor");
    require(i == 0 || d.offset == at, "a gap in the send queue");
    require(d.packet == nullptr || d.packet->length == d.length, "frame and descriptor differ");
    require(d.packet != nullptr || (t.fin_queued && d.offset == t.snd_end), "no frame and no FIN");
    at = d.end();
  }
  if (q.empty()) {
    require(t.snd_una == 0 || t.snd_una >= t.snd_end, "data without frames");
    return;
  }
  const bool with_fin = q.back().packet == nullptr;
  require(at == t.snd_end + (with_fin ? 1 : 0), "the send queue does not end at snd_end");
  require(q.front().offset <= std::max<StreamOffset>(t.snd_una, 1), "the queue begins beyond una");
  require(q.front().end() > t.snd_una, "an acknowledged frame is kept");
  if (q.has_next())
    require(q.next().end() > t.snd_nxt, "next() is sent");
  else
    require(t.snd_nxt >= t.snd_end, "next() is beyond what is unsent");
}

/// SetPipe, RFC 6675 §4: a byte sent and not SACKed counts once unless it is lost (a), and once
/// more if it was sent again (b): a tail loss probe and its original are both believed to be on the
/// way.
void check_pipe(Tcb& t) {
  if (t.snd_una == 0) return;  // the SYN has no descriptor
  tcp::SendQueue& q = t.queue;
  uint64_t pipe = 0;
  uint64_t sacked = 0;
  for (uint32_t i = q.first(); i != q.end() && q[i].offset < t.snd_nxt; ++i) {
    const tcp::SendDesc& d = q[i];
    const uint64_t n = std::min(d.end(), t.snd_nxt) - std::max(d.offset, t.snd_una);
    if (d.is(tcp::kSacked)) {
      sacked += n;
      require(!d.is(tcp::kLost | tcp::kRetransmitted), "SACKed, and on the way or lost");
      continue;
    }
    if (!d.is(tcp::kLost)) pipe += n;
    if (!d.is(tcp::kRetransmitted)) continue;
    pipe += n;
    require(d.retransmits > 0, "retransmitted, yet never");
  }
  // Without SACK, how much of it has arrived is guessed from duplicate ACKs (RFC 5681 §3.2).
  if (!t.sack_on) pipe -= std::min<uint64_t>(pipe, t.sacked_out);
  require(t.sack_on ? sacked == t.sacked_out : sacked == 0, "the sum of what was SACKed");
  require(uint64_t{t.sacked_out} + t.lost_out <= t.outstanding(), "more SACKed and lost than sent");
  require(t.in_flight() == pipe, "in_flight() is not the pipe");
}

void check_reassembly(const Tcb& t) {
  if (t.reassembly == nullptr) return;
  const tcp::Reassembly& r = *t.reassembly;
  require(!r.empty(), "an empty reassembly is kept");
  StreamOffset last = t.rcv_nxt;
  uint32_t buffers = 0;
  for (uint32_t i = 0; i < r.count(); ++i) {
    const auto& range = r.at(i);
    require(range.begin > last && range.end > range.begin, "ranges touch or overlap");
    require(range.data.bytes() == range.end - range.begin, "a range and its bytes differ");
    buffers += range.data.buffers();
    last = range.end;
  }
  require(buffers == r.buffers(), "buffer count of the reassembly");
  require(last <= t.rcv_adv, "held beyond the advertised edge");
  require(!t.fin_seen || last <= t.near_rcv_nxt(t.fin_at), "held beyond the peer's FIN");
}

}  // namespace

void check(Tcb& t, Watch& w) {
  if (t.state == State::kClosed) {
    require(t.queue.empty() && t.reassembly == nullptr, "a closed connection holds frames");
    require(tcp::deadline(t).is_never(), "a closed connection has a deadline");
    return;
  }
  require(t.snd_una <= t.snd_nxt && t.snd_nxt <= t.snd_max, "una <= nxt <= max");
  require(t.snd_max <= t.snd_nxt + 1, "more than a probe beyond snd_nxt");
  require(t.snd_max <= t.snd_end + (t.fin_queued ? 1 : 0), "sent what was never written");
  require(t.snd_una >= w.snd_una, "snd_una moved left");
  w.snd_una = t.snd_una;
  w.snd_edge = std::max(w.snd_edge, t.snd_edge);
  require(t.rcv_acked <= t.rcv_nxt, "acknowledged what never came");
  if (t.is_synchronized()) {
    require(t.rcv_adv >= w.rcv_adv, "the advertised edge moved left");
    w.rcv_adv = t.rcv_adv;
    require(t.mss >= 48, "mss below the floor");
  }
  require(t.recv_queue.bytes() <= t.rcv_nxt, "more queued than arrived");
  if (t.state >= State::kEstablished) require(t.cc.cwnd >= t.mss, "cwnd below a segment");
  if (t.reset_due) {
    require(t.queue.empty() && tcp::deadline(t).is_never(), "work beside a reset");
    return;
  }
  check_timers(t);
  if (t.state < State::kTimeWait) check_send_queue(t);
  check_pipe(t);
  check_reassembly(t);
}

void check(Tcb& t, Watch& w, const Plan& p, unsigned side) {
  require(p.options_length % 4 == 0 && p.options_length <= 40, "options not padded");
  const bool syn = has(p.flags, SegFlags::kSyn);
  const bool rst = has(p.flags, SegFlags::kRst);
  const bool fin = has(p.flags, SegFlags::kFin);
  require(!(syn && (fin || rst)) && !(fin && rst), "flags contradict");
  const bool may_have_data = !rst && (!syn || (t.syn_data && t.snd_max == 0));  // RFC 7413
  require(p.length == 0 || may_have_data, "payload on an RST, or on a SYN but the first");
  if (rst) return;
  const uint32_t full = std::max<uint32_t>(t.path_mss, 48U + 40U);
  require(uint32_t{p.length} + (p.length > 0 ? p.options_length : 0) <= full,
          "a segment above the path's MSS");
  if (p.length > 0) {
    require(p.packet != nullptr && p.packet->refs > 0, "payload of nobody");
    require(p.at + p.length <= t.pool->frame_bytes(), "payload beyond its frame");
    require(p.at >= p.packet->data_at && p.at + p.length <= p.packet->data_at + p.packet->length,
            "payload beyond the valid bytes");
    const std::byte* data = p.packet->frame + p.at;
    const StreamOffset first = syn ? 1 : p.offset;
    for (uint32_t i = 0; i < p.length; ++i)
      require(data[i] == stream_byte(side, first - 1 + i), "a wrong byte is sent");
    if (p.length == p.packet->length)
      require(checksum::fold(p.packet->sum) % 0xffff == checksum::sum(data, p.length) % 0xffff,
              "a wrong payload sum");
    require(p.seq == t.snd_seq(p.offset), "seq and offset differ");
  }
  if (syn) return;
  const StreamOffset end = p.offset + p.length + (fin ? 1 : 0);
  require(p.offset + p.length <= std::max(t.snd_end, t.snd_max), "sends what was never written");
  if (fin) require(t.fin_queued && end == t.snd_end + 1, "a FIN out of its place");
  if (p.length > 0 || fin)
    require(end <= std::max(w.snd_edge, t.snd_una) + 1,
            "more than a probe beyond every window ever offered, and beyond what was taken");
  // RFC 7323 §2.4: what the peer sees may fall back by the rounding of the shift, no more.
  require(p.ack == t.rcv_seq(t.rcv_nxt), "an ACK that is not rcv_nxt");
  const uint64_t unit = uint64_t{1} << t.rcv_wscale;
  const StreamOffset edge = t.rcv_nxt + (uint64_t{p.window} << t.rcv_wscale);
  require(edge + unit > w.wire_edge, "the window on the wire shrinks");
  w.wire_edge = std::max(w.wire_edge, edge);
}

void check_idle(const Tcb& t) {
  if (t.reset_due) require(false, "a reset is due and not sent");
  require(t.acks_due == 0 && !t.syn_due && !t.reset_reply, "something is due and not sent");
  if (t.state < State::kEstablished || t.state == State::kFinWait2 || t.state >= State::kTimeWait)
    return;
  if (t.unsent() == 0 && !t.fin_unsent()) return;
  require(t.rtx_timer != RtxTimer::kNone || !t.queue.board().cork_at.is_never(),
          "unsent data and nothing will ever wake it");
}

}  // namespace vireo::fuzz
