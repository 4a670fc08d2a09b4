#include "stack/tcp/linux_info.h"

#include <algorithm>

namespace vireo::tcp {
namespace {

uint8_t ca_state(const Tcb& t) {
  switch (t.recovery) {
    case Recovery::kFast:
      return TCP_CA_Recovery;
    case Recovery::kLoss:
      return TCP_CA_Loss;
    case Recovery::kOpen:
      break;
  }
  return t.sacked_out != 0 || t.suspects ? TCP_CA_Disorder : TCP_CA_Open;
}

}  // namespace

uint8_t linux_state(State s) {
  switch (s) {
    case State::kClosed:
      return 7;
    case State::kSynSent:
      return 2;
    case State::kSynReceived:
      return 3;
    case State::kEstablished:
      return 1;
    case State::kFinWait1:
      return 4;
    case State::kFinWait2:
      return 5;
    case State::kCloseWait:
      return 8;
    case State::kClosing:
      return 11;
    case State::kLastAck:
      return 9;
    case State::kTimeWait:
      return 6;
  }
  return 7;
}

tcp_info linux_info(const Tcb& t, Instant now) {
  const Info i = info(t);
  const auto us = [](Duration d) { return static_cast<uint32_t>(std::max<int64_t>(d.us(), 0)); };
  const auto ms_since = [&](Instant at) {
    return at == Instant() ? 0U : static_cast<uint32_t>(std::max<int64_t>((now - at).ms(), 0));
  };
  tcp_info o{};
  // As Linux: in TIME-WAIT the connection no longer belongs to the socket.
  o.tcpi_state = linux_state(i.state == State::kTimeWait ? State::kClosed : i.state);
  o.tcpi_ca_state = ca_state(t);
  o.tcpi_retransmits = static_cast<uint8_t>(std::min(i.retransmits, 255U));
  o.tcpi_options = static_cast<uint8_t>(
      (i.timestamps ? TCPI_OPT_TIMESTAMPS : 0) | (i.sack ? TCPI_OPT_SACK : 0) |
      (i.wscale ? TCPI_OPT_WSCALE : 0) | (i.ecn ? TCPI_OPT_ECN : 0) |
      (i.ecn_seen ? TCPI_OPT_ECN_SEEN : 0) | (i.syn_data ? TCPI_OPT_SYN_DATA : 0));
  o.tcpi_snd_wscale = i.snd_wscale & 0xf;
  o.tcpi_rcv_wscale = i.rcv_wscale & 0xf;
  o.tcpi_rto = us(i.rto);
  o.tcpi_snd_mss = i.snd_mss;
  o.tcpi_rcv_mss = i.rcv_mss;
  o.tcpi_unacked = i.unacked;
  o.tcpi_sacked = i.sacked;
  o.tcpi_lost = i.lost;
  o.tcpi_retrans = i.retrans;
  o.tcpi_last_data_sent = ms_since(i.last_data_sent);
  o.tcpi_last_data_recv = ms_since(i.last_data_recv);
  o.tcpi_last_ack_recv = ms_since(i.last_ack_recv);
  o.tcpi_rtt = us(i.srtt);
  o.tcpi_rttvar = us(i.rttvar);
  o.tcpi_snd_ssthresh = i.snd_ssthresh;
  o.tcpi_snd_cwnd = i.snd_cwnd;
  o.tcpi_advmss = t.path_mss - (i.timestamps ? 12U : 0U);
  o.tcpi_backoff = t.backoff;
  o.tcpi_probes = t.rtx_timer == RtxTimer::kPersist ? t.retransmits : t.keep_probes;
  o.tcpi_ato = us(t.config->delack_max);
  o.tcpi_rcv_ssthresh = i.rcv_wnd;
  o.tcpi_reordering = i.reordering;
  o.tcpi_rcv_space = i.rcv_space;
  o.tcpi_rcv_rtt = us(i.rcv_rtt);
  o.tcpi_pacing_rate = i.pacing_rate;
  o.tcpi_max_pacing_rate = i.max_pacing_rate;
  o.tcpi_delivery_rate = i.delivery_rate;
  o.tcpi_delivery_rate_app_limited = i.delivery_rate_app_limited;
  o.tcpi_total_retrans = i.total_retrans;
  o.tcpi_bytes_acked = i.bytes_acked;
  o.tcpi_bytes_received = i.bytes_received;
  o.tcpi_segs_out = i.segs_out;
  o.tcpi_segs_in = i.segs_in;
  o.tcpi_notsent_bytes = i.notsent_bytes;
  o.tcpi_min_rtt = us(i.min_rtt);
  o.tcpi_data_segs_in = i.data_segs_in;
  o.tcpi_data_segs_out = i.data_segs_out;
  o.tcpi_bytes_sent = i.bytes_sent;
  o.tcpi_bytes_retrans = i.bytes_retrans;
  o.tcpi_dsack_dups = i.dsack_dups;
  o.tcpi_reord_seen = i.reord_seen;
  o.tcpi_rcv_ooopack = i.rcv_ooopack;
  o.tcpi_snd_wnd = i.snd_wnd;
  return o;
}

}  // namespace vireo::tcp
