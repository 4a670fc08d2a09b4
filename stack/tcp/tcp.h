// The TCP engine's interface: segments in, segments out, deadlines. Sans-IO (no socket, lock,
// device, clock, global, heap): `now` is a parameter and the same calls give the same answers, so
// that every test is exact.
//
// - input(): a segment arrived. It returns Effects for the socket;
// - append(), consumed(), shutdown_write(), ...: the program did something;
// - on_deadline(): deadline() has passed, Effects again.
// After each of them there may be something to send:
// while (next_segment(tcb, now, plan)) { if (!emit(plan)) break; sent(tcb, plan, now); }
// What is declared inline here is defined in tcb.h.
//
// Owner: the engine of the flow. Thread: holder of that engine's lock. Source: RFC 9293 and those
// named at each part.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/clock.h"
#include "core/compact_duration.h"
#include "core/packet.h"
#include "core/seq.h"
#include "core/types.h"
#include "stack/tcp/cc.h"
#include "stack/wire/ipv4.h"

namespace vireo::tcp {

struct Tcb;  // stack/tcp/tcb.h

enum class State : uint8_t {
  kClosed,  ///< nothing to send or receive any more; the owner may release the Tcb
  kSynSent,
  kSynReceived,
  kEstablished,
  kFinWait1,
  kFinWait2,
  kCloseWait,
  kClosing,
  kLastAck,
  kTimeWait,
};

enum class SegFlags : uint8_t {
  kNone = 0,
  kFin = 0x01,
  kSyn = 0x02,
  kRst = 0x04,
  kPsh = 0x08,
  kAck = 0x10,
  kUrg = 0x20,
  kEce = 0x40,
  kCwr = 0x80
};

/// The byte that the peer's urgent pointer marks (RFC 6093; states as Linux's).
enum class Urgent : uint8_t {
  kNone,     ///< there is none, or the program has read past it
  kAwaited,  ///< it has not arrived
  kThere,    ///< it may be taken out of band
  kTaken,    ///< it was; in recv_queue it still stands
};

/// A received segment: header fields in host order, raw options, payload (owned).
struct Segment {
  Seq32 seq;
  Seq32 ack;
  uint16_t window = 0;  ///< as on the wire, unscaled
  SegFlags flags = SegFlags::kNone;
  uint8_t segments = 1;  ///< of several that the device has put together, as many
  uint16_t urgent = 0;
  std::span<const uint8_t> options;    ///< borrowed: valid during input()
  PacketChain payload;                 ///< TCP payload only; input() takes what it keeps
  wire::Ecn ecn = wire::Ecn::kNotEct;  ///< of its IP header
};

/// What the socket layer must know after a call; bits gather over a burst.
enum class Effects : uint16_t {
  kNone = 0,
  kReadable = 1,  ///< recv_queue grew
  kWritable =
      2,  ///< room in the send buffer again (past a third, as Linux's sk_stream_write_space)
  kConnected = 4,   ///< SYN_SENT or SYN_RECEIVED became ESTABLISHED
  kPeerClosed = 8,  ///< FIN received: end of file after recv_queue
  kError = 16,      ///< error(tcb) is set: ECONNRESET, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ...;
                    ///< nothing more will come
  kClosed = 32,     ///< state is kClosed, or kTimeWait: send what next_segment() has, take over an
                    ///< unread recv_queue, make_time_wait(), release. A Tcb kept in kTimeWait waits
                    ///< out 2MSL by itself. An RST (abort, close with unread data) turns the state
                    ///< kClosed in sent(), without an effect: look at state() after sending.
  kTransmit = 64,   ///< next_segment() has something to say
  kUrgent = 128,    ///< the peer's urgent pointer moved forward (SIGURG)
  kUrgentByte = 256,  ///< and the byte it marks is there
};

/// One segment to send. Options are complete; payload lies in one send buffer.
struct Plan {
  Seq32 seq;
  Seq32 ack;
  uint16_t window = 0;  ///< as on the wire
  SegFlags flags = SegFlags::kNone;
  uint16_t urgent = 0;
  uint8_t options_length = 0;  ///< multiple of 4
  uint8_t options[40];
  PacketBuf* packet = nullptr;  ///< payload buffer, null = none; stays the Tcb's
  uint16_t at = 0;              ///< payload offset from packet->frame
  uint16_t length = 0;          ///< payload bytes
  bool retransmission = false;
  wire::Ecn ecn = wire::Ecn::kNotEct;  ///< for its IP header
  uint8_t kind = 0;                    ///< private to TCP between next_segment() and sent()
  StreamOffset offset = 0;             ///< private to TCP: stream offset of `seq`
};

/// As net.ipv4.tcp_mtu_probing: when a connection searches for the largest segment (RFC 4821). Not
/// scoped: GCC 12 makes no `Config` of `{}` with a bit-field of a scoped one.
enum MtuProbing : uint8_t {
  kOff,
  kOnBlackHole,  ///< after timeouts that large segments may be the cause of
  kAlways,       ///< from the start
};

/// As net.ipv4.tcp_ecn.
enum class EcnMode : uint8_t {
  kOff,
  kRequest,  ///< ask in our SYN, agree to the peer's
  kAccept,   ///< agree only
};

/// Settings of one connection, in force from open; those with a setter may change later.
/// Of what a connection is made with, what is asked with each segment.
struct SegmentConfig {
  uint64_t max_pacing_rate = UINT64_MAX;  ///< payload bytes a second (SO_MAX_PACING_RATE)
  uint32_t rcv_buf = 131072;              ///< payload bytes we are ready to hold
  uint32_t snd_buf = 131072;  ///< payload bytes append() accepts before it is acknowledged
  uint32_t rcv_buf_max = 0;   ///< it grows to this by itself; not above rcv_buf: it does not
  uint32_t snd_buf_max = 0;
  uint16_t mss = 536;  ///< what we may receive and send: path MTU less IP and TCP header
  uint8_t wscale = 7;  ///< offered window shift, 0..14; lowered if coarse against rcv_buf
  CcKind congestion = CcKind::kCubic;
  EcnMode ecn = EcnMode::kAccept;  ///< DCTCP asks and agrees whatever this says
  uint8_t keep_count = 9;
  bool window_scaling : 1 = true;
  bool timestamps : 1 = true;
  bool sack : 1 = true;
  bool tlp : 1 = true;          ///< tail loss probes (Linux tcp_early_retrans)
  bool frto : 1 = true;         ///< RFC 5682 (Linux tcp_frto)
  bool spread_rto : 1 = false;  ///< repeated timeouts by 5 % either way, by ts_offset
  bool nodelay : 1 = false;
  bool cork : 1 = false;
  bool quickack : 1 = false;
  bool keepalive : 1 = false;
  bool oob_inline : 1 = false;  ///< SO_OOBINLINE: the urgent byte is read in its place
  MtuProbing mtu_probing : 2 = MtuProbing::kOff;

  bool operator==(const SegmentConfig&) const = default;
};
struct Config : SegmentConfig {
  Micros rto_min = Duration::ms(200);
  Micros rto_max = Duration::s(120);
  Micros rto_initial = Duration::s(1);
  Micros delack_max = Duration::ms(40);
  Millis keep_idle = Duration::s(7200);
  Millis keep_interval = Duration::s(75);
  Millis user_timeout{};                 ///< TCP_USER_TIMEOUT, 0 = off
  Millis fin_timeout = Duration::s(60);  ///< orphaned FIN_WAIT_2 (TCP_LINGER2); negative: none
  uint8_t syn_retries = 6;
  uint8_t synack_retries = 5;
  uint8_t retries1 = 3;       ///< timeouts that make a black hole suspected (Linux tcp_retries1)
  uint8_t retries2 = 15;      ///< data retransmissions before ETIMEDOUT (Linux tcp_retries2)
  uint32_t window_clamp = 0;  ///< TCP_WINDOW_CLAMP: most bytes advertised, 0 = no limit
  uint32_t notsent_lowat = UINT32_MAX;  ///< TCP_NOTSENT_LOWAT: unsent bytes that close append()
  uint32_t ts_offset = 0;               ///< per-connection timestamp offset (RFC 7323 §5.4)
  // Of mtu_probing, payload bytes (Linux tcp_base_mss, tcp_mtu_probe_floor, tcp_probe_threshold,
  // tcp_probe_interval).
  uint16_t mtu_base = 1024;       ///< what the search begins with, and falls back to
  uint16_t mtu_floor = 48;        ///< it never falls below
  uint16_t mtu_threshold = 8;     ///< a narrower range is not searched
  uint16_t mtu_interval_s = 600;  ///< sizes that failed are tried again after so many seconds

  bool operator==(const Config&) const = default;
};

// ---- life
/// Active open: SYN_SENT, the SYN is ready for next_segment(). `iss` from isn.h. `pool` gives send
/// buffers.
void open_active(Tcb& t, const Config& c, PacketPool& pool, Seq32 iss, Instant now);
/// Passive open from a SYN (flags SYN, no ACK, no RST): SYN_RECEIVED, the SYN-ACK is ready. Data on
/// the SYN is left for retransmission.
void open_passive(Tcb& t, const Config& c, PacketPool& pool, const Segment& syn, Seq32 iss,
                  Instant now);
/// As open_passive(), from one that has shown its cookie: data on the SYN is in recv_queue, the
/// SYN-ACK acknowledges it, and data may be sent behind that (RFC 7413 §4.2.2).
void open_fast(Tcb& t, const Config& c, PacketPool& pool, Segment&& syn, Seq32 iss, Instant now);

// Fast Open, the client's side (RFC 7413 §4.1.3, §4.2.1; fast_open_client.cpp). After open_active()
// and before the SYN leaves.
/// The SYN waits until begin_fast_open() is called (TCP_FASTOPEN_CONNECT).
void defer_syn(Tcb& t);
bool is_syn_deferred(const Tcb& t);
/// The SYN may leave as it is.
void let_syn_go(Tcb& t, Instant now);
/// What a SYN carries.
struct SynData {
  std::span<const uint8_t> cookie;  ///< of the peer, 4 to 16 bytes; empty: ask for one
  bool without_cookie = false;      ///< data goes without the option
  uint16_t peer_mss = 536;          ///< as its SYN-ACK said when it gave the cookie
  std::span<const iovec> data;
};
/// The SYN may leave: it asks for a cookie, or shows one and carries data. Repeated, it is a plain
/// SYN; what its answer does not acknowledge of the data is sent at once.
/// @return how much of the data is taken: what fits in one segment, 0 without a cookie.
size_t begin_fast_open(Tcb& t, const SynData& d, Instant now);
/// Its SYN goes on as any other: neither cookie nor data is asked of it any more.
void end_fast_open(Tcb& t);
/// Frees every buffer that the Tcb holds; the Tcb is kClosed and may be reused.
void release(Tcb& t);

// ---- wire
Effects input(Tcb& t, Segment&& s, Instant now);
/// False: next_segment() has nothing. True: it may.
inline bool has_output(const Tcb& t);
/// What to send now, in order of importance; false: nothing. Changes nothing but caches: sent()
/// commits.
bool next_segment(Tcb& t, Instant now, Plan& plan);
void sent(Tcb& t, const Plan& plan, Instant now);
/// Earliest time on_deadline() must be called; Instant::never() if none. May move later without
/// notice.
Instant deadline(const Tcb& t);
Effects on_deadline(Tcb& t, Instant now);
/// ICMP error that quoted a segment of this connection with `quoted` as its sequence number (RFC
/// 5927: ignored unless in flight). `error` is the errno (soft or hard decided by state, RFC 1122
/// §4.2.3.9).
Effects icmp_error(Tcb& t, Seq32 quoted, int error, bool hard, Instant now);
/// The path now carries segments of `mss` payload bytes; larger unsent or unacknowledged ones are
/// cut when sent again.
void set_mss(Tcb& t, uint16_t mss);
/// From now on packets may be fragmented on the way: what arrives tells nothing of the path.
void stop_mtu_probing(Tcb& t);
/// As set_mss(), and larger segments in flight were dropped on the way: they are sent again at
/// once, cut. Not a sign of congestion: cwnd stays (RFC 1191 §6.4; Linux tcp_simple_retransmit).
Effects path_shrunk(Tcb& t, uint16_t mss, Instant now);

// ---- program
/// Copies bytes of `data` into send buffers (summing on the way), at most what snd_buf and the pool
/// allow.
/// The last eighth of the pool is left for receiving; if that is why it took less and nothing is
/// unacknowledged, no kWritable will come: try again when the pool has frames.
/// @return bytes taken, 0 = no room. Requires can_send(). `more`: MSG_MORE, hold a partial segment
/// back.
size_t append(Tcb& t, std::span<const iovec> data, bool more, Instant now);
/// In-order bytes waiting for the program. The socket layer reads from it, pops or trims, then
/// calls consumed().
inline PacketChain& recv_queue(Tcb& t);
/// `least` bytes (SO_RCVLOWAT) wait, or fewer but the peer may send no more: its window is about
/// shut, and waiting for the rest would be for ever.
bool has_readable(const Tcb& t, uint32_t least);
/// Where frames are short: the text of `s` may be left for the peer to say again.
inline bool may_wait(const Tcb& t, const Segment& s);
/// The program took `bytes` from recv_queue: opens the window. @return true: an update of it is
/// due.
inline bool consumed(Tcb& t, uint32_t bytes, Instant now);
/// Sends FIN after what is queued (shutdown(SHUT_WR), first half of close).
void shutdown_write(Tcb& t, Instant now);
/// The program will never read again: discards unread data, orphans the connection. Data that
/// arrives afterwards, or was unread, is answered by RST as Linux does (RFC 2525 §2.17; tcp(7)).
/// FIN is sent as by shutdown_write unless that RST goes out.
void close(Tcb& t, Instant now);
/// Sends RST (if the state has a peer) and goes to kClosed once it is sent (SO_LINGER 0, exhausted
/// memory).
void abort(Tcb& t, Instant now);

/// Ends the connection at once without a word to the peer: the owner found that it cannot go on.
/// @return its effects.
Effects fail(Tcb& t, int error);
/// As fail(), with an RST for the peer.
Effects evict(Tcb& t, int error);

// ---- urgent data (RFC 9293 §3.8.5, RFC 6093; urgent.cpp)
/// What append() took last ends with an urgent byte. Before next_segment() is asked.
void mark_urgent(Tcb& t);
inline Urgent urgent(const Tcb& t);
/// Bytes of recv_queue before the marked one; more than there are if it has not arrived. Requires
/// urgent() other than kNone.
uint64_t bytes_to_mark(const Tcb& t);
/// The marked byte; kTaken from now unless `peek`. Requires kThere.
std::byte take_urgent(Tcb& t, bool peek);

// ---- facts
/// `quoted` is the sequence number of a segment that is sent and not acknowledged (RFC 5927 §4.1).
bool is_in_flight(const Tcb& t, Seq32 quoted);
inline State state(const Tcb& t);
/// The handshake is not over and nothing may be sent or read before it is.
bool is_opening(const Tcb& t);
int error(const Tcb& t);  ///< errno of the failure, 0 = none; stays until the owner clears it
/// append() is allowed: ESTABLISHED or CLOSE_WAIT and no FIN queued.
inline bool can_send(const Tcb& t);
uint32_t send_room(const Tcb& t);  ///< bytes append() would take, memory permitting
/// poll(2) says so: a third of the buffer is free and, by TCP_NOTSENT_LOWAT, half of that is too.
bool is_writable(const Tcb& t);
inline uint32_t unsent_bytes(const Tcb& t);  ///< SIOCOUTQNSD
uint32_t unacked_bytes(const Tcb& t);        ///< queued and not acknowledged, the FIN too: SIOCOUTQ
/// FIN received and everything before it is in recv_queue or read.
inline bool peer_closed(const Tcb& t);
/// How often the interval of window probes has doubled since the peer shut its window; 0: it is
/// open.
uint8_t shut_doublings(const Tcb& t);
uint16_t effective_mss(
    const Tcb& t);  ///< payload bytes of a full segment, options counted (TCP_MAXSEG)

// ---- settings that may change on a live connection
void set_nodelay(Tcb& t, bool on, Instant now);
void set_cork(Tcb& t, bool on, Instant now);
void set_quickack(Tcb& t, bool on, Instant now);
void set_keepalive(Tcb& t, bool on, Duration idle, Duration interval, uint8_t count, Instant now);
void set_user_timeout(Tcb& t, Duration d);
/// From now on it stays as it is. The advertised edge never moves left (RFC 9293 §3.8.6).
void set_rcv_buf(Tcb& t, uint32_t bytes);
void set_snd_buf(Tcb& t, uint32_t bytes);
void set_max_pacing_rate(Tcb& t, uint64_t bytes_per_second);
void set_rto_min(Tcb& t, Duration d);
void set_fin_timeout(Tcb& t, Duration d);
/// Marks of ECN stay as they were agreed.
void set_congestion(Tcb& t, CcKind kind);
void set_rto_max(Tcb& t, Duration d);
void set_delack_max(Tcb& t, Duration d);
void set_syn_retries(Tcb& t, uint8_t n);
void set_window_clamp(Tcb& t, uint32_t bytes);
/// @return the socket became writable by it.
Effects set_notsent_lowat(Tcb& t, uint32_t bytes);
void set_oob_inline(Tcb& t, bool on);
/// TCP_QUICKACK reads as 1: the connection is not taken for an interactive one.
bool is_quick(const Tcb& t);

/// Plain-data picture of a connection, for getsockopt(TCP_INFO), counters and handing over.
/// Sums since the connection was opened.
struct InfoSums {
  uint64_t bytes_acked, bytes_received, bytes_sent, bytes_retrans;
  uint32_t segs_out, segs_in, data_segs_out, data_segs_in, reord_seen, rcv_ooopack, dsack_dups;
  uint32_t retransmits, total_retrans, tlp_probes, undos;
};
/// What is known of the path.
struct InfoPath {
  Duration rto, srtt, rttvar, min_rtt, rcv_rtt;
  uint64_t pacing_rate;      ///< what the window lets leave in a second, within max_pacing_rate
  uint64_t max_pacing_rate;  ///< UINT64_MAX: no bound
  uint64_t delivery_rate;    ///< bytes a second
  bool delivery_rate_app_limited;
};
struct Info : InfoSums, InfoPath {
  State state;
  uint8_t snd_wscale, rcv_wscale;
  bool timestamps, sack, wscale, ecn, ecn_seen, syn_data;
  /// unacked, snd_cwnd, snd_ssthresh: segments, as TCP_INFO has them; rcv_space and windows: bytes
  uint32_t snd_mss, rcv_mss, unacked, snd_cwnd, snd_ssthresh, rcv_space, snd_wnd, rcv_wnd;
  uint32_t cwnd, ssthresh;  ///< bytes
  // Segments by what is believed of them, and what recovery has learned.
  uint32_t sacked, lost, retrans, reordering, reo_wnd_quarters;
  uint32_t notsent_bytes;
  Instant last_data_sent, last_data_recv, last_ack_recv;
};
Info info(const Tcb& t);

// ---- TIME_WAIT: what is left of a connection, in 64 bytes with its keys (RFC 9293 §3.6.1, RFC
// 6191)
struct TimeWait {
  Seq32 snd_nxt, rcv_nxt;
  uint32_t ts_recent = 0;
  uint32_t ts_offset = 0;
  uint16_t window = 0;
  bool timestamps = false;
};
TimeWait make_time_wait(const Tcb& t);
enum class TimeWaitVerdict : uint8_t { kDrop, kAck, kNewConnection, kRestart };
/// Verdict on a segment for a TIME_WAIT entry: kAck answers with `reply`, kRestart too and restarts
/// 2MSL, kNewConnection lets a listener take the SYN (RFC 6191, compared modulo 2^32), with an ISN
/// above `snd_nxt`.
TimeWaitVerdict time_wait_input(TimeWait& w, const Segment& s, Instant now, Plan& reply);

/// The answer to a segment that belongs to no connection (RFC 9293 §3.10.7.1); false: none (it was
/// an RST).
bool reset_for(const Segment& s, uint32_t payload_bytes, Plan& reply);

}  // namespace vireo::tcp

namespace vireo {
template <>
inline constexpr bool kIsFlags<tcp::SegFlags> = true;
template <>
inline constexpr bool kIsFlags<tcp::Effects> = true;
}  // namespace vireo
