// The control block of one connection, by cache line: receive, send, round trip and timers, then
// the cold tail. Only stack/tcp writes it. Others use tcp.h, except that the engine's fast path
// (stack/engine/fast_path) and the counters read fields directly, which is cheaper than a call.
// Owner: the engine of the flow. Thread: holder of that engine's lock.
//
// All positions are 64-bit stream offsets: the SYN is 0, the first byte 1, the FIN follows the last
// byte. Sequence numbers are iss + offset and irs + offset, compared only as Seq32.
//
// What we send (RFC 9293 §3.3.1)
//
//   0 SYN        acknowledged  |  in flight, SACKed, lost  |probe|   never sent     |FIN
//   ---------------------------+---------------------------+-----+------------------+---
//                           snd_una                     snd_nxt snd_max          snd_end
//                                                                        snd_edge: anywhere
//   What became of the bytes between snd_una and snd_nxt is marked in the send queue's descriptors;
//   the sums by mark are kept here, so that the pipe of RFC 6675 is one expression: in_flight().
//   snd_max - snd_nxt: a window probe that went beyond the edge and counts as not in flight.
//
// What we receive
//
//   0 SYN        taken by the program  |  recv_queue  |  reassembly, holes  |
//   -----------------------------------+--------------+---------------------+---
//                                    (read)        rcv_nxt               rcv_adv
//   rcv_acked <= rcv_nxt: Last.ACK.sent. rcv_adv: the advertised right edge, never moves left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "core/clock.h"
#include "core/packet.h"
#include "core/seq.h"
#include "stack/tcp/buffer_tuning.h"
#include "stack/tcp/cc.h"
#include "stack/tcp/delivery_rate.h"
#include "stack/tcp/ecn.h"
#include "stack/tcp/mtu_search.h"
#include "stack/tcp/reassembly.h"
#include "stack/tcp/rtt.h"
#include "stack/tcp/send_queue.h"
#include "stack/tcp/shared_config.h"
#include "stack/tcp/tcp.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

/// What the single timer of the send side waits for.
enum class RtxTimer : uint8_t {
  kNone,        ///< nothing outstanding
  kRetransmit,  ///< the retransmission timeout, rto_at
  kProbe,       ///< to send a tail loss probe (RFC 8985 §7.2)
  kReorder,     ///< the end of the reordering window (RFC 8985 §6.2 step 5)
  kPersist,
};
enum class Recovery : uint8_t {
  kOpen,
  kFast,  ///< fast recovery until `recover` is acknowledged; PRR (RFC 9937) sets cwnd
  kLoss,  ///< after a retransmission timeout, until `recover` is acknowledged
};

struct Tcb {
  // ---- line 0: receive
  StreamOffset rcv_nxt = 0;
  StreamOffset rcv_adv = 0;
  StreamOffset rcv_acked = 0;
  PacketChain recv_queue;
  Seq32 irs;
  uint32_t ts_recent = 0;
  State state = State::kClosed;
  bool predictable : 1 = false;    ///< no unusual state: header prediction may be tried
  bool terse : 1 = false;          ///< nor on the send side: may_send_single() may be tried
  bool ecn_on : 1 = false;         ///< negotiated
  bool ecn_expect_ce : 1 = false;  ///< DCTCP: the latest data was marked CE
  /// A single segment was sent (single_ack, below) and nothing was received since:
  /// Scoreboard::answer.
  bool single_out : 1 = false;
  bool partial_acked : 1 = false;  ///< RFC 6582: the first partial ACK restarted the timer
  bool watched : 1 = false;        ///< set_watched()
  uint8_t snd_wscale = 0;          ///< shift of windows we receive
  uint8_t rcv_wscale = 0;          ///< shift of windows we send
  uint8_t acks_due = 0;            ///< bare ACKs to send now; more than one only for duplicates
  uint8_t quick_acks : 5 = 0;      ///< further segments to acknowledge at once
  uint8_t ack_patience : 3 = 0;    ///< doublings of kMinAckDelay, up to delack_max (delayed_ack.h)
  uint16_t rcv_mss = 0;            ///< largest payload received: size of a full segment

  // ---- lines 1, 2: send
  StreamOffset snd_una = 0;
  StreamOffset snd_nxt = 0;
  StreamOffset snd_max = 0;
  StreamOffset snd_end = 1;   ///< where the next appended byte goes
  StreamOffset snd_edge = 0;  ///< right edge of the peer's window
  // Bytes in [snd_una, snd_nxt) by mark. Without SACK, sacked_out is estimated from duplicate ACKs.
  uint32_t sacked_out = 0;
  uint32_t lost_out = 0;
  uint32_t retrans_out = 0;
  uint32_t rtx_due = 0;  ///< lost and not yet retransmitted
  Seq32 iss;
  Seq32 snd_wl1;  ///< SEG.SEQ of the last window update

  SendQueue queue;
  Seq32 snd_wl2;         ///< SEG.ACK of the last window update
  uint32_t max_wnd = 0;  ///< largest window the peer offered
  uint16_t mss = 536;    ///< payload of a full segment, less options
  uint16_t peer_mss = 536;
  // Segments to send other than data and ACKs.
  bool syn_due : 1 = false;
  bool reset_due : 1 = false;    ///< send an RST, then kClosed
  bool reset_reply : 1 = false;  ///< send an RST at reset_seq; the connection stays
  bool probe_due : 1 = false;
  bool keep_due : 1 = false;
  bool rtx_force : 1 = false;    ///< the next retransmission ignores cwnd
  bool ack_bare : 1 = false;     ///< the ACK due must not ride on data (duplicate, SACK)
  bool paced : 1 = false;        ///< config.max_pacing_rate is a limit
  bool ecn_ece : 1 = false;      ///< our ACKs have ECE set
  bool ecn_old_due : 1 = false;  ///< DCTCP: the next bare ACK acknowledges ecn_old_at
  bool ecn_cwr_due : 1 = false;
  bool ecn_ect_all : 1 = false;  ///< DCTCP: all our segments are ECT, data or not
  bool ecn_echo : 1 = false;     ///< the ACK being processed has ECE set
  // Settings and state that decide whether a segment may leave.
  bool nodelay : 1 = false;
  bool cork : 1 = false;
  bool more : 1 = false;  ///< MSG_MORE on the last append
  bool push : 1 = false;  ///< the queue's partial last segment must be sent
  bool fin_queued : 1 = false;
  bool ts_on : 1 = false;
  bool sack_on : 1 = false;
  bool wscale_on : 1 = false;
  bool interactive : 1 = false;  ///< our data carried an ACK: quick ACKs end
  bool orphan : 1 = false;       ///< closed by the program
  bool peer_fin : 1 = false;     ///< FIN received in order
  bool passive : 1 = false;
  bool write_blocked : 1 = false;
  bool dsack : 1 = false;     ///< [dsack_left, dsack_right) to report
  bool fin_seen : 1 = false;  ///< fin_at is valid
  bool syn_retried : 1 = false;
  bool urgent_mode : 1 = false;  ///< snd_up is ahead of snd_una, or was when last checked
  bool fast_open : 1 = false;    ///< RFC 7413: we send before the handshake is complete, or the
                                 ///< SYN-ACK acknowledged the data on our SYN
  bool fast_asked : 1 = false;   ///< RFC 7413: our SYN requests a cookie or carries data
  bool syn_data : 1 = false;     ///< the front of the queue is, or was, sent on our first SYN
  bool suspects : 1 = false;     ///< something may be reordered or lost: Scoreboard::reorder_at
  bool tlp_due : 1 = false;      ///< send a tail loss probe
  bool tlp_out : 1 = false;      ///< one is outstanding: Scoreboard::tlp_end
  bool new_first : 1 =
      false;  ///< F-RTO: unsent data before retransmissions (RFC 5682 §2.1 step 2b)
  bool searches_mtu : 1 = false;  ///< mtu_search is set
  // Results of prepare_single(), valid until forget_single(): only single segments and their ACKs
  // since.
  bool single_send : 1 = false;  ///< if nothing is in flight, up to a full segment may be sent
  bool single_ack : 1 = false;   ///< the ACK of a smaller one has no effect beyond that it arrived

  bool autocork : 1 = false;  ///< as cork, but set by the engine for a moment: fast_path/nagle.h
  Recovery recovery : 2 = Recovery::kOpen;
  uint8_t reo_wnd_persist : 5 = 0;  ///< recoveries until reo_wnd_mult is reset to one
  uint8_t dupacks = 0;
  RtxTimer rtx_timer = RtxTimer::kNone;
  uint8_t backoff = 0;      ///< doublings of the running RTO or probe interval
  uint8_t retransmits = 0;  ///< expiries without progress
  uint8_t keep_probes = 0;
  uint8_t reo_wnd_mult = 1;  ///< reordering window in quarters of min_rtt (RFC 8985 §6.2)
  uint16_t reordering = 3;   ///< largest reordering distance seen, in segments; at least DupThresh
  uint16_t nagle_room = 0;   ///< fast_path/nagle.h: at least this many bytes fit behind those held
  uint32_t data_segs_out = 0, segs_out = 0, segs_in = 0, data_segs_in = 0;
  uint32_t ts_recent_s = 0;  ///< when ts_recent was taken, whole seconds
  uint64_t bytes_sent = 0;

  // ---- lines 3, 4: an ACK of new data; timers
  CongestionControl cc;
  RttEstimator rtt;
  Instant rtx_at = Instant::never();  ///< expiry of rtx_timer
  Instant rto_at = Instant::never();  ///< the retransmission timeout, whatever rtx_timer is
  Instant delack_at = Instant::never();
  /// Keepalive; for an orphan in FIN_WAIT_2 and in TIME_WAIT, the end of the state.
  Instant life_at = Instant::never();

  // ---- line 5: other fields that every segment uses
  PacketPool* pool = nullptr;
  std::unique_ptr<Reassembly> reassembly;
  Instant last_sent;                            ///< data
  Instant last_received;                        ///< data
  Instant last_ack;                             ///< any acceptable ACK
  [[no_unique_address]] DeliveryRate delivery;  // the next members are in its padding
  uint8_t error = 0;                            ///< errno
  uint8_t soft_error = 0;                       ///< errno
  Urgent urgent = Urgent::kNone;
  uint32_t rcv_buf = 0, snd_buf = 0;  ///< as in Config; grown by tuning
  uint32_t total_retrans = 0, rcv_ooopack = 0;

  // ---- lines 6, 7: receive buffer tuning, settings, rarely used fields
  BufferTuning tuning;
  SharedConfig config;      ///< except rcv_buf, snd_buf, mss and ts_offset, which are kept here
  uint32_t ts_offset = 0;   ///< Config::ts_offset
  uint16_t path_mss = 536;  ///< Config::mss
  EcnState ecn;
  std::byte urgent_byte{};  ///< valid if `urgent` is kThere
  Instant stuck_since;      ///< first expiry without progress
  // Low halves of offsets near rcv_nxt, see near_rcv_nxt().
  uint32_t fin_at = 0;       ///< the peer's FIN, if fin_seen
  uint32_t urgent_mark = 0;  ///< the byte that the peer's pointer marks, see `urgent`
  uint32_t ecn_old_at = 0;   ///< end of what was received before the mark changed, if ecn_old_due
  Seq32 dsack_left, dsack_right;
  Seq32 reset_seq;
  uint32_t challenge_ms = 0;  ///< when the last rate-limited ACK was sent, 0: never
  uint16_t tlp_probes = 0;
  uint16_t undos = 0;  ///< recovery episodes found spurious
  uint32_t dsack_dups = 0, reord_seen = 0;
  uint64_t bytes_retrans = 0;
  std::unique_ptr<MtuSearch> mtu_search;

  // ---- derived values
  Seq32 snd_seq(StreamOffset o) const { return iss + static_cast<uint32_t>(o); }
  Seq32 rcv_seq(StreamOffset o) const { return irs + static_cast<uint32_t>(o); }
  StreamOffset snd_offset(Seq32 s) const { return unwrap(s, snd_seq(snd_una), snd_una); }
  /// Sent and not acknowledged, without a probe beyond the window.
  uint64_t outstanding() const { return snd_nxt - snd_una; }
  /// Assumed to be in the network: the pipe of RFC 6675 §4.
  uint64_t in_flight() const { return outstanding() - sacked_out - lost_out + retrans_out; }
  /// No mark, no probe, no recovery: a condition of the fast path.
  bool is_orderly() const {
    return recovery == Recovery::kOpen && (sacked_out | lost_out | retrans_out) == 0 && !suspects &&
           !tlp_out;
  }
  /// The offset less than 2 GiB from rcv_nxt that has this low half.
  StreamOffset near_rcv_nxt(uint32_t low) const {
    const auto ahead = static_cast<int32_t>(low - static_cast<uint32_t>(rcv_nxt));
    return rcv_nxt + static_cast<StreamOffset>(ahead);
  }
  uint64_t unsent() const { return snd_end > snd_nxt ? snd_end - snd_nxt : 0; }
  bool fin_unsent() const { return fin_queued && snd_nxt <= snd_end; }
  bool is_synchronized() const { return state >= State::kSynReceived; }
};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // conditionally supported, and supported here
static_assert(offsetof(Tcb, snd_una) == 64 && offsetof(Tcb, queue) == 128);
static_assert(offsetof(Tcb, cc) == 192 && offsetof(Tcb, rtt) == 256);
static_assert(offsetof(Tcb, pool) == 320 && offsetof(Tcb, tuning) == 384);
#pragma GCC diagnostic pop
static_assert(sizeof(Tcb) <= 496);  // part of the 1 KiB budget of an idle connection, see TcpFlow

/// The program read data: clears an urgent mark that it has passed.
void pass_mark(Tcb& t);
/// The program read data while the peer sees a window of `seen` bytes, less than half of the
/// receive buffer: advertises a new window if it justifies a packet. @return true: a segment is to
/// be sent.
bool reopen_window(Tcb& t, uint64_t seen);

inline void tune_receive(Tcb& t, uint32_t bytes, Instant now) {
  BufferTuning& b = t.tuning;
  if (!t.ts_on) [[unlikely]]
    measure_by_window(t, now);
  b.copied += bytes;
  if (b.rtt.get() == Duration{} || now - b.round_at < b.rtt) return;
  if (b.copied > b.space) [[unlikely]]
    grow_receive(t);
  b.copied = 0;
  b.round_at = now;
}

// ---- functions of tcp.h that every message of a ping-pong calls: one or two members each
inline PacketChain& recv_queue(Tcb& t) { return t.recv_queue; }
inline State state(const Tcb& t) { return t.state; }
inline bool peer_closed(const Tcb& t) { return t.peer_fin; }
inline Urgent urgent(const Tcb& t) { return t.urgent; }
inline uint32_t unsent_bytes(const Tcb& t) { return static_cast<uint32_t>(t.unsent()); }
inline bool can_send(const Tcb& t) {
  const bool fast = t.state == State::kSynReceived && t.fast_open;
  return (t.state == State::kEstablished || t.state == State::kCloseWait || fast) &&
         !t.fin_queued && !t.reset_due;
}
/// More data does not help a program that has some to read, nor one that waits for what precedes
/// it.
inline bool may_wait(const Tcb& t, const Segment& s) {
  return !t.recv_queue.empty() || s.seq != t.rcv_seq(t.rcv_nxt);
}
inline bool consumed(Tcb& t, uint32_t bytes, Instant now) {
  if (!t.predictable) [[unlikely]] {  // otherwise there is no urgent mark and no FIN
    if (t.urgent != Urgent::kNone) pass_mark(t);
    if (t.peer_fin || t.state < State::kEstablished) return false;
  }
  if (t.rcv_buf < t.config->rcv_buf_max) tune_receive(t, bytes, now);
  const auto seen = static_cast<int64_t>(t.rcv_adv - t.rcv_nxt);
  if (2 * seen >= int64_t{t.rcv_buf}) [[likely]]
    return false;  // nothing to advertise
  return reopen_window(t, static_cast<uint64_t>(std::max<int64_t>(seen, 0)));
}
inline bool has_output(const Tcb& t) {
  return t.acks_due != 0 || t.snd_nxt < t.snd_end || t.rtx_due != 0 || t.tlp_due || t.syn_due ||
         t.reset_due || t.reset_reply || t.keep_due || t.fin_unsent();
}

/// Only an ACK is to be sent, and it may wait for the program's next data: it covers less than two
/// full segments, the handshake, or the peer's FIN (RFC 9293 §3.8.6.3).
inline bool may_delay_ack(const Tcb& t) {
  return t.acks_due == 1 && !t.ack_bare && t.snd_nxt == t.snd_end && !t.orphan &&
         (t.state == State::kEstablished || t.state == State::kCloseWait) && t.rtx_due == 0 &&
         !(t.tlp_due || t.keep_due || t.probe_due || t.reset_reply || t.reset_due) &&
         !(t.ecn_ece || t.ecn_old_due || t.config->quickack) && t.reassembly == nullptr &&
         t.rcv_nxt - t.rcv_acked < 2ULL * t.rcv_mss;
}

// ---- shared by the .cpp files of this folder

/// An answer to a single segment that the program has received while its bookkeeping is
/// outstanding.
struct AwaitedAnswer {
  Instant at;
  uint32_t bytes = 0;
  uint32_t ts_echo = 0;
};

constexpr Duration kTimeWaitLength = Duration::s(60);  ///< 2 MSL, as Linux

/// Recomputes Tcb::predictable and Tcb::terse after a rare event.
void refresh_prediction(Tcb& t);
/// Anything but a single segment or its ACK may change the conditions of single_send and
/// single_ack: they are determined again when needed.
inline void forget_single(Tcb& t) {
  t.single_send = t.single_ack = t.single_out = false;
  t.nagle_room = 0;
}
/// Sets the one that applies of {retransmission timer, persist timer, nothing outstanding}.
void sync_timer(Tcb& t, Instant now);
/// Starts or restarts the retransmission timer if data is outstanding, else acts as sync_timer().
void restart_timer(Tcb& t, Instant now);
/// Chooses what the timer waits for before rto_at, which stays: a probe, reordering or nothing.
void choose_timer(Tcb& t, Instant now);
/// kTransmit if next_segment() may have a segment.
Effects transmit_wish(const Tcb& t);
/// Ends the connection at once with `error` (0: orderly). Keeps recv_queue.
Effects finish(Tcb& t, int error);
/// Ends the connection with an RST: the error is set now, kClosed when the RST is sent.
Effects reset(Tcb& t, int error);
/// Enters ESTABLISHED (or the state that a queued FIN implies): windows, congestion control,
/// keepalive.
void establish(Tcb& t, Instant now);
void enter_time_wait(Tcb& t, Instant now);
/// Recomputes the effective MSS from the peer's, the path's, the search's and the options in use.
void update_mss(Tcb& t);
/// The result of update_mss() without an MTU search: payload and options, as Config::mss.
uint16_t largest_segment(const Tcb& t);
/// Payload of the largest segment on the wire, regardless of our frame size.
uint32_t full_mss(const Tcb& t);
/// Bytes of options in every segment.
inline uint16_t plain_options(const Tcb& t) { return t.ts_on ? 12 : 0; }
constexpr uint16_t kMinMss = 48;  ///< payload less options (Linux tcp_min_snd_mss)
/// Window field of a SYN, which is never scaled (RFC 7323 §2.2).
inline uint16_t first_window(uint32_t rcv_buf, uint32_t clamp) {
  const uint32_t most = clamp != 0 ? std::min(rcv_buf, clamp) : rcv_buf;
  return static_cast<uint16_t>(std::min<uint32_t>(most, 65535));
}
inline uint16_t first_window(const Config& c) { return first_window(c.rcv_buf, c.window_clamp); }
inline uint16_t first_window(const Tcb& t) {
  return first_window(t.rcv_buf, t.config->window_clamp);
}
/// True if only the peer's window prevents sending unsent data or the FIN.
bool window_blocks(const Tcb& t);
/// Queues in-order payload at rcv_nxt and what reassembly holds behind it; schedules the ACK.
void accept_data(Tcb& t, PacketChain data, Instant now);
/// An ACK is due now. `bare`: a duplicate ACK, which must not be piggybacked on data.
void ack_now(Tcb& t, bool bare);
/// The same, at most one per half second (RFC 5961 §7, RFC 9293 §3.10.7.4).
void challenge_ack(Tcb& t, Instant now);
/// Timestamp clock: milliseconds (RFC 7323 §5.4).
inline uint32_t timestamp_clock(Instant now, uint32_t offset) {
  return static_cast<uint32_t>(static_cast<uint64_t>(now.ns()) / 1'000'000) + offset;
}
/// Clock of Tcb::ts_recent_s, in units of 2^30 ns: exact seconds are not needed.
inline uint32_t seconds(Instant now) {
  return static_cast<uint32_t>(static_cast<uint64_t>(now.ns()) >> 30);
}
/// RFC 7323 §5.5: after 24 days, by the clock of Tcb::ts_recent_s, TS.Recent is outdated.
constexpr auto kPawsIdle = static_cast<uint32_t>(Duration::s(24 * 86'400).ns() >> 30);
inline uint32_t timestamp(const Tcb& t, Instant now) { return timestamp_clock(now, t.ts_offset); }
constexpr uint16_t kDefaultMss = 536;  ///< of a peer that sends no MSS option (RFC 9293 §3.7.1)
/// The window shift to offer: with too coarse a unit, rounding would lose the buffer.
uint8_t fitting_wscale(const Config& c);
/// Adds Fast Open's option and data to our first SYN.
void plan_fast_open(Tcb& t, Plan& p);
/// The SYN of plan_fast_open() was sent.
void syn_data_sent(Tcb& t, const Plan& p, Instant now);
/// Marks the SYN's data that was not acknowledged with it as never sent.
void take_back_syn_data(Tcb& t);
/// Negotiates options from `o`, those of the peer's SYN (RFC 7323 §2.2, §3.2; RFC 2018 §2).
void adopt_syn(Tcb& t, const Segment& syn, const wire::TcpOptions& o, Instant now);
/// Processes the urgent pointer of an acceptable segment; `mark` is the offset of the marked byte
/// (sixth step).
Effects note_urgent(Tcb& t, int64_t mark);
/// Payload from offset `at` arrived, in order or not: takes the marked byte if it is in it.
Effects look_for_urgent(Tcb& t, StreamOffset at, const PacketChain& text);
/// Sets URG and urgent pointer of a segment at `offset`. Requires `t.urgent_mode`.
void plan_urgent(const Tcb& t, StreamOffset offset, Plan& p);
/// Free bytes of the send buffer, regardless of TCP_NOTSENT_LOWAT.
uint32_t buffer_room(const Tcb& t);
/// Segments in flight longer than `mss` were dropped only for their size: retransmits them at once,
/// cwnd unchanged.
void lose_oversized(Tcb& t, Instant now);
/// Retransmits at once what is marked lost, cwnd unchanged.
void resend_uncongested(Tcb& t);
/// A retransmission timeout: the path may drop large packets without an ICMP error.
void suspect_black_hole(Tcb& t, Instant now);
/// Duplicate bytes arrived: they are reported with the next ACK (RFC 2883 §4).
void note_duplicate(Tcb& t, Seq32 left, Seq32 right);
}  // namespace vireo::tcp
