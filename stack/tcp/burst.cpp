#include "stack/tcp/burst.h"

#include <algorithm>

#include "stack/tcp/output.h"
#include "stack/tcp/recovery.h"
#include "stack/tcp/unsent.h"

namespace vireo::tcp {

namespace {

constexpr unsigned kMinPaced = 2;  ///< segments, as Linux tcp_min_tso_segs

/// A full segment of new data, and the next differs only in sequence number and payload: no state
/// that applies to one segment only or that must be checked for each.
bool may_lead(const Tcb& t, const Plan& p) {
  if (p.offset != t.snd_nxt || p.retransmission || has(p.flags, SegFlags::kSyn) || t.urgent_mode ||
      t.tlp_due || t.probe_due || t.rtx_due != 0 || t.reassembly != nullptr)
    return false;
  if (t.searches_mtu && !is_mtu_settled(t)) return false;
  return p.length >= fits_frame(t, t.mss);
}

/// Payload limit of a burst: for a paced connection, one millisecond at its rate.
uint32_t most_bytes(const Tcb& t, const Plan& p, const BurstLimits& most) {
  if (!t.paced) return most.bytes;
  const uint64_t quantum =
      std::max<uint64_t>(t.config->max_pacing_rate / 1000, uint64_t{kMinPaced} * p.length);
  return static_cast<uint32_t>(std::min<uint64_t>(most.bytes, quantum));
}

/// @return false: too many slices.
bool add_slice(Burst& b, PacketBuf* packet, uint64_t at, uint32_t length, unsigned most) {
  if (b.slice_count > 0) {
    PacketSlice& last = b.slices[b.slice_count - 1];
    if (last.packet == packet) {  // the stream continues in it
      last.length = static_cast<uint16_t>(last.length + length);
      return true;
    }
    if (b.slice_count >= most) return false;
  }
  b.slices[b.slice_count++] = {packet, static_cast<uint16_t>(at), static_cast<uint16_t>(length)};
  return true;
}

}  // namespace

bool plan_burst(Tcb& t, const Plan& p, const BurstLimits& most, Burst& b) {
  if (!may_lead(t, p)) return false;
  const uint32_t bytes = most_bytes(t, p, most);
  const unsigned slices = std::min(most.slices, Burst::kMaxSlices);
  b.segments = 1;
  b.slice_count = 0;
  b.bytes = p.length;
  add_slice(b, p.packet, p.at, p.length, slices);
  StreamOffset at = p.offset + p.length;
  const uint64_t flight = t.in_flight();
  uint32_t index = t.queue.next_index();
  for (bool is_whole = true; is_whole && b.segments < most.segments && at < t.snd_end;) {
    while (t.queue[index].end() <= at) ++index;
    const SendDesc& d = t.queue[index];
    // A segment shorter than the MSS counts as small once it is sent (sent()).
    const StreamOffset snd_sml = p.length < t.mss ? at : t.queue.board().snd_sml;
    const uint32_t n = may_leave(t, d, at, t.mss, flight + b.bytes, snd_sml);
    if (n == 0 || n > p.length || b.bytes + n > bytes ||
        !add_slice(b, d.packet, d.packet->data_at + (at - d.offset), n, slices))
      break;
    is_whole = n == p.length;
    at += n;
    b.bytes += n;
    ++b.segments;
  }
  b.last_flags = tail_flags(t, at);
  return b.segments > 1;
}

Plan Burst::plan(const Plan& first, const Segment& s) const {
  Plan p = first;
  p.seq = first.seq + s.from;
  p.offset = first.offset + s.from;
  p.flags = s.flags;
  p.packet = s.text.packet;
  p.at = s.text.at;
  p.length = s.text.length;
  return p;
}

void sent_burst(Tcb& t, const Plan& plan, const Burst& b, unsigned segments, Instant now) {
  forget_single(t);
  const bool is_all = segments == b.segments;
  const uint32_t bytes = is_all ? b.bytes : segments * plan.length;
  StreamOffset end = plan.offset;
  uint32_t length = 0;
  for (uint32_t left = bytes; left != 0; left -= length) {
    length = std::min<uint32_t>(left, plan.length);
    if (t.paced) [[unlikely]]
      t.queue.board().pacer.spend(length, t.config->max_pacing_rate, now);
    SendDesc& d = t.queue.next();
    if (d.marks != 0) [[unlikely]]
      count_more(t, d, length);
    d.sent_at = now;
    end += length;
    if (end >= d.end()) t.queue.pass_next();
  }
  if (length < current_mss(t)) t.queue.board().snd_sml = end;
  if (has(plan.flags, SegFlags::kCwr)) t.ecn_cwr_due = false;
  if (is_all && has(b.last_flags, SegFlags::kFin)) [[unlikely]] {
    fin_sent(t, now);
    ++end;
  }
  t.segs_out += segments;
  t.data_segs_out += segments;
  t.bytes_sent += bytes;
  t.last_sent = now;
  note_answer(t, now);
  sent_up_to(t, end, plan);
  if (t.recovery == Recovery::kFast) [[unlikely]]
    t.queue.board().prr_out += bytes;
  data_sent_timer(t, now);
}

}  // namespace vireo::tcp
