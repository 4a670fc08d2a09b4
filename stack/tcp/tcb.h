// The control block of one connection, by cache line: receive, send, round trip and timers, then
// the cold tail. stack/tcp alone writes it. What others are to ask is in tcp.h; the engine's fast
// path (stack/engine/fast_path) and the counters read fields, for a call costs more than they do.
// Owner: the engine of the flow. Thread: holder of that engine's lock.
//
// All positions are 64-bit stream offsets: the SYN is 0, the first byte 1, FIN follows the last
// byte. Wire numbers are iss + offset and irs + offset, compared only as Seq32.
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

/// What the one timer of the send side waits for.
enum class RtxTimer : uint8_t {
  kNone,        ///< nothing outstanding
  kRetransmit,  ///< the retransmission timeout, at rto_at
  kProbe,       ///< to send a tail loss probe (RFC 8985 §7.2)
  kReorder,     ///< to judge what reordering may explain no longer (RFC 8985 §6.2 step 5)
  kPersist,
};
enum class Recovery : uint8_t {
  kOpen,
  kFast,  ///< fast recovery until `recover` is acknowledged: RFC 9937 rules cwnd
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
  bool predictable : 1 = false;    ///< nothing unusual goes on: header prediction may be tried
  bool terse : 1 = false;          ///< nor with what we say: may_send_single() may be asked
  bool ecn_on : 1 = false;         ///< agreed upon
  bool ecn_expect_ce : 1 = false;  ///< DCTCP: the latest data came marked
  /// A lone segment left (single_ack, below) and nothing came since: Scoreboard::answer.
  bool single_out : 1 = false;
  bool partial_acked : 1 = false;  ///< RFC 6582: the first partial ACK restarted the timer
  uint8_t snd_wscale = 0;          ///< shift of windows we receive
  uint8_t rcv_wscale = 0;          ///< shift of windows we send
  uint8_t acks_due = 0;            ///< bare ACKs owed now; more than one only for duplicates
  uint8_t quick_acks : 5 = 0;      ///< segments still acknowledged at once
  uint8_t ack_patience : 3 = 0;    ///< doublings of kMinAckDelay, up to delack_max (delayed_ack.h)
  uint16_t rcv_mss = 0;            ///< largest payload seen: what "a full segment" is

  // ---- lines 1, 2: send
  StreamOffset snd_una = 0;
  StreamOffset snd_nxt = 0;
  StreamOffset snd_max = 0;
  StreamOffset snd_end = 1;   ///< where the next appended byte goes
  StreamOffset snd_edge = 0;  ///< right edge of the peer's window
  // Bytes in [snd_una, snd_nxt) by mark; without SACK, sacked_out is what duplicate ACKs suggest.
  uint32_t sacked_out = 0;
  uint32_t lost_out = 0;
  uint32_t retrans_out = 0;
  uint32_t rtx_due = 0;  ///< lost and not sent again yet
  Seq32 iss;
  Seq32 snd_wl1;  ///< SEG.SEQ of the last window update

  SendQueue queue;
  Seq32 snd_wl2;         ///< SEG.ACK of the last window update
  uint32_t max_wnd = 0;  ///< largest window the peer offered
  uint16_t mss = 536;    ///< payload of a full segment, options counted
  uint16_t peer_mss = 536;
  // What wants to be said besides data and ACKs.
  bool syn_due : 1 = false;
  bool reset_due : 1 = false;    ///< RST, then kClosed
  bool reset_reply : 1 = false;  ///< RST at reset_seq; the connection stays
  bool probe_due : 1 = false;
  bool keep_due : 1 = false;
  bool rtx_force : 1 = false;    ///< the next retransmission ignores cwnd
  bool ack_bare : 1 = false;     ///< the ACK due must not ride on data (duplicate, SACK)
  bool paced : 1 = false;        ///< config.max_pacing_rate is a bound
  bool ecn_ece : 1 = false;      ///< our ACKs say ECE
  bool ecn_old_due : 1 = false;  ///< DCTCP: the next bare ACK is of ecn_old_at
  bool ecn_cwr_due : 1 = false;
  bool ecn_ect_all : 1 = false;  ///< DCTCP: what we send is ECT, data or not
  bool ecn_echo : 1 = false;     ///< the ACK being taken says ECE
  // Settings and facts that the send gate looks at.
  bool nodelay : 1 = false;
  bool cork : 1 = false;
  bool more : 1 = false;  ///< MSG_MORE on the last append
  bool push : 1 = false;  ///< the queue's partial tail must go
  bool fin_queued : 1 = false;
  bool ts_on : 1 = false;
  bool sack_on : 1 = false;
  bool wscale_on : 1 = false;
  bool interactive : 1 = false;  ///< our data carried an ACK: no more quick ACKs
  bool orphan : 1 = false;       ///< closed by the program
  bool peer_fin : 1 = false;     ///< FIN received in order
  bool passive : 1 = false;
  bool write_blocked : 1 = false;
  bool dsack : 1 = false;     ///< [dsack_left, dsack_right) to report
  bool fin_seen : 1 = false;  ///< fin_at is valid
  bool syn_retried : 1 = false;
  bool urgent_mode : 1 = false;  ///< snd_up is ahead of snd_una, or was when last looked at
  bool fast_open : 1 = false;    ///< RFC 7413: we speak before the handshake is over, or the data
                                 ///< on our SYN was acknowledged with it
  bool fast_asked : 1 = false;   ///< RFC 7413: our SYN asks for a cookie or has data
  bool syn_data : 1 = false;     ///< the front of the queue goes, or went, with our first SYN
  bool suspects : 1 = false;     ///< something may be late or lost: Scoreboard::reorder_at
  bool tlp_due : 1 = false;      ///< a tail loss probe is to be sent
  bool tlp_out : 1 = false;      ///< one is outstanding: Scoreboard::tlp_end
  bool new_first : 1 =
      false;  ///< F-RTO: unsent data before retransmissions (RFC 5682 §2.1 step 2b)
  bool searches_mtu : 1 = false;  ///< there is an mtu_search
  // What lone.h found out, until forget_single(): nothing but lone segments and their ACKs since.
  bool single_send : 1 = false;  ///< up to a full segment may leave at once if nothing is in flight
  bool single_ack : 1 = false;   ///< the ACK of a smaller one says no more than that it arrived

  bool autocork : 1 = false;  ///< as cork, but the engine's for a moment: held.h
  Recovery recovery : 2 = Recovery::kOpen;
  uint8_t reo_wnd_persist : 5 = 0;  ///< recoveries after which reo_wnd_mult is one again
  uint8_t dupacks = 0;
  RtxTimer rtx_timer = RtxTimer::kNone;
  uint8_t backoff = 0;      ///< doublings of the running RTO or probe interval
  uint8_t retransmits = 0;  ///< expiries without progress
  uint8_t keep_probes = 0;
  uint8_t reo_wnd_mult = 1;  ///< quarters of min_rtt that reordering may take (RFC 8985 §6.2)
  uint16_t reordering = 3;   ///< largest distance seen, in segments; at least DupThresh
  uint16_t nagle_room = 0;   ///< held.h: so many bytes at least join those that wait
  uint32_t data_segs_out = 0, segs_out = 0, segs_in = 0, data_segs_in = 0;
  uint32_t ts_recent_s = 0;  ///< when ts_recent was taken, whole seconds
  uint64_t bytes_sent = 0;

  // ---- lines 3, 4: an ACK of new data; timers
  CongestionControl cc;
  RttEstimator rtt;
  Instant rtx_at = Instant::never();  ///< of rtx_timer
  Instant rto_at = Instant::never();  ///< the retransmission timeout, however far off
  Instant delack_at = Instant::never();
  /// Keepalive; of an orphan in FIN_WAIT_2, and in TIME_WAIT, the end.
  Instant life_at = Instant::never();

  // ---- line 5: more of every segment
  PacketPool* pool = nullptr;
  std::unique_ptr<Reassembly> reassembly;
  Instant last_sent;                            ///< data
  Instant last_received;                        ///< data
  Instant last_ack;                             ///< any acceptable ACK
  [[no_unique_address]] DeliveryRate delivery;  // what follows lies in its padding
  uint8_t error = 0;                            ///< errno
  uint8_t soft_error = 0;                       ///< errno
  Urgent urgent = Urgent::kNone;
  uint32_t rcv_buf = 0, snd_buf = 0;  ///< as in Config; they grow
  uint32_t total_retrans = 0, rcv_ooopack = 0;

  // ---- lines 6, 7: the receive buffer's tuning, settings, what is seldom looked at
  BufferTuning tuning;
  SharedConfig config;      ///< but for rcv_buf, snd_buf, mss and ts_offset, which are here
  uint32_t ts_offset = 0;   ///< Config::ts_offset
  uint16_t path_mss = 536;  ///< Config::mss
  EcnState ecn;
  std::byte urgent_byte{};  ///< valid if `urgent` is kThere
  Instant stuck_since;      ///< first expiry without progress
  // Low halves of offsets that lie near rcv_nxt, see near_rcv_nxt().
  uint32_t fin_at = 0;       ///< the peer's FIN, if fin_seen
  uint32_t urgent_mark = 0;  ///< the byte that the peer's pointer marks, see `urgent`
  uint32_t ecn_old_at = 0;   ///< what was received before the mark changed, if ecn_old_due
  Seq32 dsack_left, dsack_right;
  Seq32 reset_seq;
  uint32_t challenge_ms = 0;  ///< when the last limited ACK went out, 0: never
  uint16_t tlp_probes = 0;
  uint16_t undos = 0;  ///< episodes found spurious
  uint32_t dsack_dups = 0, reord_seen = 0;
  uint64_t bytes_retrans = 0;
  std::unique_ptr<MtuSearch> mtu_search;

  // ---- small facts
  Seq32 snd_seq(StreamOffset o) const { return iss + static_cast<uint32_t>(o); }
  Seq32 rcv_seq(StreamOffset o) const { return irs + static_cast<uint32_t>(o); }
  StreamOffset snd_offset(Seq32 s) const { return unwrap(s, snd_seq(snd_una), snd_una); }
  /// Sent and not acknowledged, a probe beyond the window not counted.
  uint64_t outstanding() const { return snd_nxt - snd_una; }
  /// Believed to be in the network: the pipe of RFC 6675 §4.
  uint64_t in_flight() const { return outstanding() - sacked_out - lost_out + retrans_out; }
  /// Nothing is missing: no mark, no probe, no recovery. What the fast path needs.
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
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // conditionally supported: here it is
static_assert(offsetof(Tcb, snd_una) == 64 && offsetof(Tcb, queue) == 128);
static_assert(offsetof(Tcb, cc) == 192 && offsetof(Tcb, rtt) == 256);
static_assert(offsetof(Tcb, pool) == 320 && offsetof(Tcb, tuning) == 384);
#pragma GCC diagnostic pop
static_assert(sizeof(Tcb) <= 496);  // of the 1 KiB that an idle connection may take, see TcpFlow

/// The program read: a mark behind the reader is forgotten.
void pass_mark(Tcb& t);
/// The program read, and the peer sees a window of `seen` bytes, less than half of what it could:
/// says so at once if it is worth a packet. @return there is something to send.
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

// ---- what tcp.h declares and a message of a ping-pong asks for: a member or two
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
/// Who has something to read is not helped by more, nor who waits for what comes before it.
inline bool may_wait(const Tcb& t, const Segment& s) {
  return !t.recv_queue.empty() || s.seq != t.rcv_seq(t.rcv_nxt);
}
inline bool consumed(Tcb& t, uint32_t bytes, Instant now) {
  if (!t.predictable) [[unlikely]] {  // else there is no mark, and the peer goes on
    if (t.urgent != Urgent::kNone) pass_mark(t);
    if (t.peer_fin || t.state < State::kEstablished) return false;
  }
  if (t.rcv_buf < t.config->rcv_buf_max) tune_receive(t, bytes, now);
  const auto seen = static_cast<int64_t>(t.rcv_adv - t.rcv_nxt);
  if (2 * seen >= int64_t{t.rcv_buf}) [[likely]]
    return false;  // and so no further look
  return reopen_window(t, static_cast<uint64_t>(std::max<int64_t>(seen, 0)));
}
inline bool has_output(const Tcb& t) {
  return t.acks_due != 0 || t.snd_nxt < t.snd_end || t.rtx_due != 0 || t.tlp_due || t.syn_due ||
         t.reset_due || t.reset_reply || t.keep_due || t.fin_unsent();
}

/// All that is to be said is an ACK, and it may wait for what the program says next: of less than
/// two full segments, of the handshake, or of the peer's FIN (RFC 9293 §3.8.6.3).
inline bool may_delay_ack(const Tcb& t) {
  return t.acks_due == 1 && !t.ack_bare && t.snd_nxt == t.snd_end && !t.orphan &&
         (t.state == State::kEstablished || t.state == State::kCloseWait) && t.rtx_due == 0 &&
         !(t.tlp_due || t.keep_due || t.probe_due || t.reset_reply || t.reset_due) &&
         !(t.ecn_ece || t.ecn_old_due || t.config->quickack) && t.reassembly == nullptr &&
         t.rcv_nxt - t.rcv_acked < 2ULL * t.rcv_mss;
}

// ---- shared by the .cpp files of this folder

/// An answer to a lone segment that its program has, and whose books are not done.
struct AwaitedAnswer {
  Instant at;
  uint32_t bytes = 0;
  uint32_t ts_echo = 0;
};

constexpr Duration kTimeWaitLength = Duration::s(60);  ///< 2 MSL, as Linux

/// Recomputes Tcb::predictable and Tcb::terse after anything rare happened.
void refresh_prediction(Tcb& t);
/// What is neither a lone segment nor the ACK of one changes what both look at: asked anew then.
inline void forget_single(Tcb& t) {
  t.single_send = t.single_ack = t.single_out = false;
  t.nagle_room = 0;
}
/// Keeps the one of {retransmission timer, persist timer, nothing outstanding} that is true.
void sync_timer(Tcb& t, Instant now);
/// Starts or restarts the retransmission timer if data is outstanding, else what sync_timer says.
void restart_timer(Tcb& t, Instant now);
/// Chooses what is waited for before rto_at, which stays: a probe, reordering or nothing.
void choose_timer(Tcb& t, Instant now);
/// kTransmit if next_segment may have something.
Effects transmit_wish(const Tcb& t);
/// Ends the connection at once with `error` (0: orderly). Keeps recv_queue.
Effects finish(Tcb& t, int error);
/// Ends it with an RST: error now, kClosed when the RST is sent.
Effects reset(Tcb& t, int error);
/// ESTABLISHED (or what a queued FIN makes of it): windows, congestion control, keepalive.
void establish(Tcb& t, Instant now);
void enter_time_wait(Tcb& t, Instant now);
/// Effective MSS from the peer's, the path's, the search's and the options in use.
void update_mss(Tcb& t);
/// What update_mss() has if nothing is searched for: payload and options, as Config::mss.
uint16_t largest_segment(const Tcb& t);
/// Payload of the largest that may be on the wire, whatever a frame of ours holds.
uint32_t full_mss(const Tcb& t);
/// Bytes of options on every segment.
inline uint16_t plain_options(const Tcb& t) { return t.ts_on ? 12 : 0; }
constexpr uint16_t kMinMss = 48;  ///< payload after options (Linux tcp_min_snd_mss)
/// Window field of a SYN, which is never scaled (RFC 7323 §2.2).
inline uint16_t first_window(uint32_t rcv_buf, uint32_t clamp) {
  const uint32_t most = clamp != 0 ? std::min(rcv_buf, clamp) : rcv_buf;
  return static_cast<uint16_t>(std::min<uint32_t>(most, 65535));
}
inline uint16_t first_window(const Config& c) { return first_window(c.rcv_buf, c.window_clamp); }
inline uint16_t first_window(const Tcb& t) {
  return first_window(t.rcv_buf, t.config->window_clamp);
}
/// True if the peer's window alone keeps unsent data or FIN back.
bool window_blocks(const Tcb& t);
/// Takes in-order payload at rcv_nxt and what reassembly held behind it; schedules the ACK.
void accept_data(Tcb& t, PacketChain data, Instant now);
/// A bare ACK is owed now. `bare`: a duplicate, which must not ride on data.
void ack_now(Tcb& t, bool bare);
/// The same, at most one per half second (RFC 5961 §7, RFC 9293 §3.10.7.4).
void challenge_ack(Tcb& t, Instant now);
/// Timestamp clock: milliseconds (RFC 7323 §5.4).
inline uint32_t timestamp_clock(Instant now, uint32_t offset) {
  return static_cast<uint32_t>(static_cast<uint64_t>(now.ns()) / 1'000'000) + offset;
}
/// Clock of Tcb::ts_recent_s: seconds of 2^30 ns, for nobody counts them exactly.
inline uint32_t seconds(Instant now) {
  return static_cast<uint32_t>(static_cast<uint64_t>(now.ns()) >> 30);
}
inline uint32_t timestamp(const Tcb& t, Instant now) { return timestamp_clock(now, t.ts_offset); }
constexpr uint16_t kDefaultMss = 536;  ///< of a peer that names none (RFC 9293 §3.7.1)
/// The window shift to offer: a step that is coarse against the buffer would round it away.
uint8_t fitting_wscale(const Config& c);
/// Our first SYN: what Fast Open adds to it.
void plan_fast_open(Tcb& t, Plan& p);
/// That SYN left.
void syn_data_sent(Tcb& t, const Plan& p, Instant now);
/// What of the SYN's data was not acknowledged with it counts as never sent.
void take_back_syn_data(Tcb& t);
/// Negotiates options, `o`, from the peer's SYN (RFC 7323 §2.2, §3.2; RFC 2018 §2).
void adopt_syn(Tcb& t, const Segment& syn, const wire::TcpOptions& o, Instant now);
/// The urgent pointer of an acceptable segment, in `t` as offset of the marked byte (step six).
Effects note_urgent(Tcb& t, int64_t mark);
/// Text [at, ...) arrived, in order or not: takes the marked byte if it is in it.
Effects look_for_urgent(Tcb& t, StreamOffset at, const PacketChain& text);
/// URG and pointer of a segment at `offset`; `t.urgent_mode` is set.
void plan_urgent(const Tcb& t, StreamOffset offset, Plan& p);
/// Bytes that the send buffer has room for, whatever TCP_NOTSENT_LOWAT says.
uint32_t buffer_room(const Tcb& t);
/// Segments in flight that are longer than `mss` were dropped for that alone: sent again at once,
/// with the window as it is.
void lose_oversized(Tcb& t, Instant now);
/// What is taken for lost is sent again at once, with the window as it is.
void resend_uncongested(Tcb& t);
/// A retransmission timeout: perhaps the path drops what is large, and nobody tells.
void suspect_black_hole(Tcb& t, Instant now);
/// Duplicate bytes arrived: reported with the next ACK (RFC 2883 §4).
void note_duplicate(Tcb& t, Seq32 left, Seq32 right);
}  // namespace vireo::tcp
