#include "stack/tcp/syn_record.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

void adopt_syn(SynRecord& r, const Config& c, const Segment& syn) {
  const wire::TcpOptions o = wire::parse_tcp_options(syn.options, true);
  r.irs = syn.seq;
  r.mss = o.has_mss ? o.mss : kDefaultMss;
  r.ts_on = c.timestamps && o.has_timestamps;
  r.ts_recent = r.ts_on ? o.ts_val : 0;
  r.sack_on = c.sack && o.sack_permitted;
  r.wscale_on = c.window_scaling && o.has_window_scale;
  r.wscale = r.wscale_on ? o.window_scale & 0xf : 0;
  r.ecn_on = ecn_agrees(c, syn);
}

void plan_syn_ack(const SynRecord& r, const Config& c, Instant now, Plan& p) {
  p = Plan{};
  p.seq = r.iss;
  p.ack = r.irs + 1;
  p.flags = SegFlags::kSyn | SegFlags::kAck;
  if (r.ecn_on) p.flags |= SegFlags::kEce;
  p.window = first_window(c);
  wire::SynOptions o;
  o.mss = c.mss;
  o.sack_permitted = r.sack_on;
  o.timestamps = r.ts_on;
  o.ts_val = timestamp_clock(now, c.ts_offset);
  o.ts_ecr = r.ts_recent;
  if (r.wscale_on) o.window_scale = fitting_wscale(c);
  p.options_length = wire::emit_syn_options(p.options, o);
}

void add_fast_open(Plan& p, std::span<const uint8_t> cookie) {
  std::array<uint8_t, 40> option;
  wire::TcpOptionWriter w(option);
  w.fast_open(cookie);
  if (p.options_length + w.size() > sizeof p.options) return;
  std::memcpy(p.options + p.options_length, option.data(), w.size());
  p.options_length = static_cast<uint8_t>(p.options_length + w.size());
}

void plan_record_ack(const SynRecord& r, const Config& c, Instant now, Plan& p) {
  p = Plan{};
  p.seq = r.iss + 1;
  p.ack = r.irs + 1;
  p.flags = SegFlags::kAck;
  p.window = static_cast<uint16_t>(first_window(c) >> (r.wscale_on ? fitting_wscale(c) : 0));
  if (!r.ts_on) return;
  wire::TcpOptionWriter w(p.options);
  w.timestamps(timestamp_clock(now, c.ts_offset), r.ts_recent);
  p.options_length = w.size();
}

SynVerdict syn_record_input(SynRecord& r, const Config& c, const Segment& s) {
  const bool syn = has(s.flags, SegFlags::kSyn);
  const bool ack = has(s.flags, SegFlags::kAck);
  const bool rst = has(s.flags, SegFlags::kRst);
  const wire::TcpOptions o = wire::parse_tcp_options(s.options, syn);
  const bool ts = r.ts_on && o.has_timestamps;
  const bool old = ts && !rst && static_cast<int32_t>(o.ts_val - r.ts_recent) < 0;
  if (syn && !ack && !rst && s.seq == r.irs && !old) return SynVerdict::kRepeat;
  // An ACK of anything but our SYN belongs to another connection: as in LISTEN.
  if (ack && !rst && s.ack != r.iss + 1) return SynVerdict::kReset;
  const Seq32 next = r.irs + 1;
  if (rst) {  // RFC 5961 §3.2; an RST without ACK, or with another ACK number, is checked by SEQ
              // alone
    if (s.seq == next) return SynVerdict::kGone;
    return s.seq.in_window(next, first_window(c)) ? SynVerdict::kChallenge : SynVerdict::kDrop;
  }
  // SEG.SEQ may be one before the window: the SYN-ACK of a simultaneous open.
  const uint32_t length = s.payload.bytes() + (has(s.flags, SegFlags::kFin) ? 1 : 0);
  const int32_t left = s.seq - next + (syn ? 1 : 0);
  const bool fits = left >= 0 ? static_cast<uint32_t>(left) <= first_window(c)
                              : left + static_cast<int32_t>(length) > 0;
  if (old || !fits) return SynVerdict::kChallenge;
  // RFC 5961 §4: a peer that lost its state will reset us. (SYN and ACK: a simultaneous open.)
  if (syn && !(ack && s.seq == r.irs)) return SynVerdict::kChallenge;
  if (!ack) return SynVerdict::kDrop;
  if (ts && left <= 0) r.ts_recent = o.ts_val;
  return SynVerdict::kOpen;
}

}  // namespace vireo::tcp
