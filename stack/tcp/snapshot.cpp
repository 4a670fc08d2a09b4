#include <algorithm>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

namespace {

/// As Linux: the window divided by the round trip, times 2 in slow start, times 1.2 otherwise.
uint64_t pacing_rate(const Tcb& t) {
  if (!t.rtt.has_sample()) return t.config->max_pacing_rate;
  const uint64_t percent = t.cc.in_slow_start() ? 200 : 120;
  const auto us = static_cast<uint64_t>(std::max<int64_t>(t.rtt.srtt.us(), 1));
  return std::min(uint64_t{t.cc.cwnd} * percent * 10'000 / us, t.config->max_pacing_rate);
}

}  // namespace

/// Linux's TCP_INFINITE_SSTHRESH: no loss yet.
constexpr uint32_t kInfiniteSsthresh = 0x7fffffff;

Info info(const Tcb& t) {
  Info i{};
  i.state = t.state;
  i.snd_wscale = t.snd_wscale;
  i.rcv_wscale = t.rcv_wscale;
  i.timestamps = t.ts_on;
  i.sack = t.sack_on;
  i.wscale = t.wscale_on;
  i.ecn = t.ecn_on;
  i.ecn_seen = t.ecn.ect_seen;
  i.syn_data = t.fast_open;
  i.snd_mss = t.mss;
  i.rcv_mss = t.rcv_mss;
  i.unacked = static_cast<uint32_t>((t.outstanding() + t.mss - 1) / t.mss);
  i.retransmits = t.retransmits;
  i.total_retrans = t.total_retrans;
  i.snd_cwnd = t.cc.cwnd / t.mss;
  i.snd_ssthresh =
      t.cc.ssthresh == CongestionControl::kMaxWindow ? kInfiniteSsthresh : t.cc.ssthresh / t.mss;
  i.cwnd = t.cc.cwnd;
  i.ssthresh = t.cc.ssthresh;
  i.rcv_space = t.tuning.space != 0 ? t.tuning.space : initial_window(t.path_mss);
  i.rcv_rtt = t.tuning.rtt;
  i.max_pacing_rate = t.config->max_pacing_rate;
  i.pacing_rate = pacing_rate(t);
  i.delivery_rate = t.delivery.bytes_per_second();
  i.delivery_rate_app_limited = t.delivery.is_app_limited();
  i.snd_wnd = static_cast<uint32_t>(t.snd_edge > t.snd_una ? t.snd_edge - t.snd_una : 0);
  i.rcv_wnd = static_cast<uint32_t>(t.rcv_adv > t.rcv_nxt ? t.rcv_adv - t.rcv_nxt : 0);
  i.rto = t.rtt.backed_off(t.backoff, t.config->rto_max);
  i.srtt = t.rtt.srtt;
  i.rttvar = t.rtt.rttvar;
  i.min_rtt = t.rtt.min_rtt;
  // As Linux, FINs and the SYN of an active open count as bytes, too.
  const uint64_t una = t.snd_una;
  i.bytes_acked = una > 0 && t.passive ? una - 1 : una;
  i.bytes_received = t.rcv_nxt > 0 ? t.rcv_nxt - 1 : 0;
  i.bytes_sent = t.bytes_sent;
  i.bytes_retrans = t.bytes_retrans;
  i.segs_out = t.segs_out;
  i.segs_in = t.segs_in;
  i.data_segs_out = t.data_segs_out;
  i.data_segs_in = t.data_segs_in;
  i.reord_seen = t.reord_seen;
  i.rcv_ooopack = t.rcv_ooopack;
  i.dsack_dups = t.dsack_dups;
  const auto segments = [&t](uint32_t bytes) { return (bytes + t.mss - 1U) / t.mss; };
  i.sacked = segments(t.sacked_out);
  i.lost = segments(t.lost_out);
  i.retrans = segments(t.retrans_out);
  i.reordering = t.reordering;
  i.reo_wnd_quarters = t.reo_wnd_mult;
  i.tlp_probes = t.tlp_probes;
  i.undos = t.undos;
  i.notsent_bytes = static_cast<uint32_t>(t.unsent());
  i.last_data_sent = t.last_sent;
  i.last_data_recv = t.last_received;
  i.last_ack_recv = t.last_ack;
  return i;
}

}  // namespace vireo::tcp
