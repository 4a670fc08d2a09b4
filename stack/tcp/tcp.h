// The TCP engine's interface: segments in, segments out, deadlines. Sans-IO (no socket, lock,
// device, clock, global, heap): `now` is a parameter and the same calls give the same results, so
// tests are deterministic.
//
// - input(): a segment arrived. It returns Effects for the socket;
// - append(), consumed(), shutdown_write(), ...: the program made a call;
// - on_deadline(): deadline() has passed. It returns Effects, too.
// After each of them there may be something to send:
// while (next_segment(tcb, now, plan)) { if (!emit(plan)) break; sent(tcb, plan, now); }
// Functions declared inline here are defined in tcb.h.
//
// Owner: the engine of the flow. Thread: holder of that engine's lock. Source: RFC 9293 and the
// RFCs named at each part.
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
  kNone,     ///< no urgent byte, or the program has read past it
  kAwaited,  ///< the marked byte has not arrived
  kThere,    ///< it has arrived and can be read with MSG_OOB
  kTaken,    ///< it was read with MSG_OOB; it is still in recv_queue
};

/// A received segment: header fields in host order, raw options, payload (owned).
struct Segment {
  Seq32 seq;
  Seq32 ack;
  uint16_t window = 0;  ///< as on the wire, unscaled
  SegFlags flags = SegFlags::kNone;
  uint8_t segments = 1;  ///< segments that the device merged into this one
  uint16_t urgent = 0;
  std::span<const uint8_t> options;    ///< borrowed: valid during input()
  PacketChain payload;                 ///< TCP payload only; input() takes what it keeps
  wire::Ecn ecn = wire::Ecn::kNotEct;  ///< from its IP header
};

/// What the socket layer must know after a call. The bits are ORed over a burst.
enum class Effects : uint16_t {
  kNone = 0,
  kReadable = 1,  ///< recv_queue grew
  kWritable =
      2,  ///< the send buffer has room again (a third is free, as Linux's sk_stream_write_space)
  kConnected = 4,   ///< SYN_SENT or SYN_RECEIVED became ESTABLISHED
  kPeerClosed = 8,  ///< FIN received: end of file after recv_queue
  kError = 16,   ///< error(tcb) is set: ECONNRESET, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ...; no
                 ///< further effects follow
  kClosed = 32,  ///< state is kClosed or kTimeWait: send what next_segment() returns, take over an
                 ///< unread recv_queue, call make_time_wait() and release(). A Tcb kept in
                 ///< kTimeWait handles 2MSL itself. An RST that we send (abort, close with unread
                 ///< data) sets kClosed in sent() without an effect: check state() after sending.
  kTransmit = 64,     ///< next_segment() has a segment to send
  kUrgent = 128,      ///< the peer's urgent pointer moved forward (SIGURG)
  kUrgentByte = 256,  ///< the byte that it marks has arrived
};

/// One segment to send. Options are complete; the payload lies in one send buffer.
struct Plan {
  Seq32 seq;
  Seq32 ack;
  uint16_t window = 0;  ///< as on the wire
  SegFlags flags = SegFlags::kNone;
  uint16_t urgent = 0;
  uint8_t options_length = 0;  ///< multiple of 4
  uint8_t options[40];
  PacketBuf* packet = nullptr;  ///< payload buffer, null = none; owned by the Tcb
  uint16_t at = 0;              ///< payload offset from packet->frame
  uint16_t length = 0;          ///< payload bytes
  bool retransmission = false;
  wire::Ecn ecn = wire::Ecn::kNotEct;  ///< for its IP header
  uint8_t kind = 0;                    ///< private to TCP between next_segment() and sent()
  StreamOffset offset = 0;             ///< private to TCP: stream offset of `seq`
};

/// Values of net.ipv4.tcp_mtu_probing: when a connection searches for the largest segment (RFC
/// 4821). An unscoped enum: GCC 12 rejects `{}` for a Config with a bit-field of a scoped enum.
enum MtuProbing : uint8_t {
  kOff,
  kOnBlackHole,  ///< after timeouts that large segments may have caused
  kAlways,       ///< from the start
};

/// Values of net.ipv4.tcp_ecn.
enum class EcnMode : uint8_t {
  kOff,
  kRequest,  ///< request ECN in our SYN, accept the peer's request
  kAccept,   ///< accept the peer's request only
};

/// Settings of one connection that are read for each segment. They apply from open; those with a
/// setter may change later.
struct SegmentConfig {
  uint64_t max_pacing_rate = UINT64_MAX;  ///< payload bytes a second (SO_MAX_PACING_RATE)
  uint32_t rcv_buf = 131072;              ///< receive buffer, payload bytes
  uint32_t snd_buf = 131072;  ///< payload bytes append() accepts before they are acknowledged
  uint32_t rcv_buf_max = 0;   ///< tuning grows rcv_buf up to this; off if not above rcv_buf
  uint32_t snd_buf_max = 0;
  uint16_t mss = 536;  ///< largest segment in either direction: path MTU less IP and TCP header
  uint8_t wscale = 7;  ///< offered window shift, 0..14; lowered if too coarse for rcv_buf
  CcKind congestion = CcKind::kCubic;
  EcnMode ecn = EcnMode::kAccept;  ///< DCTCP requests and accepts ECN regardless
  uint8_t keep_count = 9;
  bool window_scaling : 1 = true;
  bool timestamps : 1 = true;
  bool sack : 1 = true;
  bool tlp : 1 = true;          ///< tail loss probes (Linux tcp_early_retrans)
  bool frto : 1 = true;         ///< RFC 5682 (Linux tcp_frto)
  bool spread_rto : 1 = false;  ///< varies repeated timeouts by 5 % either way, by ts_offset
  bool nodelay : 1 = false;
  bool cork : 1 = false;
  bool quickack : 1 = false;
  bool keepalive : 1 = false;
  bool oob_inline : 1 = false;  ///< SO_OOBINLINE: the urgent byte is read in the stream
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
  uint8_t retries1 = 3;       ///< timeouts before a black hole is suspected (Linux tcp_retries1)
  uint8_t retries2 = 15;      ///< data retransmissions before ETIMEDOUT (Linux tcp_retries2)
  uint32_t window_clamp = 0;  ///< TCP_WINDOW_CLAMP: most bytes advertised, 0 = no limit
  uint32_t notsent_lowat = UINT32_MAX;  ///< TCP_NOTSENT_LOWAT: limit of unsent bytes
  uint32_t ts_offset = 0;               ///< per-connection timestamp offset (RFC 7323 §5.4)
  // For mtu_probing, in payload bytes (Linux tcp_base_mss, tcp_mtu_probe_floor,
  // tcp_probe_threshold, tcp_probe_interval).
  uint16_t mtu_base = 1024;       ///< initial size and fallback
  uint16_t mtu_floor = 48;        ///< lower limit of the size
  uint16_t mtu_threshold = 8;     ///< a narrower range is not searched further
  uint16_t mtu_interval_s = 600;  ///< seconds until sizes that failed are tried again

  bool operator==(const Config&) const = default;
};

// ---- life
/// Active open: state SYN_SENT, the SYN is ready for next_segment(). `iss` from isn.h. Send buffers
/// come from `pool`.
void open_active(Tcb& t, const Config& c, PacketPool& pool, Seq32 iss, Instant now);
/// Passive open from a SYN (flags SYN, no ACK, no RST): state SYN_RECEIVED, the SYN-ACK is ready.
/// Data on the SYN is dropped; the peer retransmits it.
void open_passive(Tcb& t, const Config& c, PacketPool& pool, const Segment& syn, Seq32 iss,
                  Instant now);
/// As open_passive(), for a SYN with a valid Fast Open cookie: its data is put in recv_queue, the
/// SYN-ACK acknowledges it, and data may be sent after the SYN-ACK (RFC 7413 §4.2.2).
void open_fast(Tcb& t, const Config& c, PacketPool& pool, Segment&& syn, Seq32 iss, Instant now);

// Fast Open, the client's side (RFC 7413 §4.1.3, §4.2.1; fast_open_client.cpp). To be called after
// open_active() and before the SYN leaves.
/// The SYN waits until begin_fast_open() is called (TCP_FASTOPEN_CONNECT).
void defer_syn(Tcb& t);
bool is_syn_deferred(const Tcb& t);
/// Lets a deferred SYN leave unchanged.
void let_syn_go(Tcb& t, Instant now);
/// Fast Open content of a SYN.
struct SynData {
  std::span<const uint8_t> cookie;  ///< the peer's, 4 to 16 bytes; empty: request one
  bool without_cookie = false;      ///< send data without the cookie option
  uint16_t peer_mss = 536;          ///< from the SYN-ACK that gave the cookie
  std::span<const iovec> data;
};
/// Lets the SYN leave: it requests a cookie, or contains one and carries data. A retransmitted SYN
/// is plain. Data that the SYN-ACK does not acknowledge is sent again at once.
/// @return bytes of data taken: what fits in one segment, 0 without a cookie.
size_t begin_fast_open(Tcb& t, const SynData& d, Instant now);
/// The SYN continues as an ordinary one: Fast Open's cookie and data are no longer tracked.
void end_fast_open(Tcb& t);
/// Frees all buffers of the Tcb. Its state is kClosed and it may be reused.
void release(Tcb& t);

// ---- wire
Effects input(Tcb& t, Segment&& s, Instant now);
/// False: next_segment() has nothing to send. True: it may have.
inline bool has_output(const Tcb& t);
/// Plans the most important segment to send now; false: none. Changes only caches: sent() commits.
bool next_segment(Tcb& t, Instant now, Plan& plan);
void sent(Tcb& t, const Plan& plan, Instant now);
/// Earliest time at which on_deadline() must be called; Instant::never() if none. It may move later
/// without notice.
Instant deadline(const Tcb& t);
Effects on_deadline(Tcb& t, Instant now);
/// An ICMP error quoted a segment of this connection with sequence number `quoted` (RFC 5927:
/// ignored unless in flight). `error` is the errno; the state decides whether it is soft or hard
/// (RFC 1122 §4.2.3.9).
Effects icmp_error(Tcb& t, Seq32 quoted, int error, bool hard, Instant now);
/// The path now carries segments of `mss` payload bytes. Larger unsent or unacknowledged segments
/// are split when they are sent.
void set_mss(Tcb& t, uint16_t mss);
/// From now on packets may be fragmented by routers, so their arrival does not prove a path MTU.
void stop_mtu_probing(Tcb& t);
/// As set_mss(), and larger segments in flight were dropped: they are split and sent again at once.
/// Not a sign of congestion: cwnd stays (RFC 1191 §6.4; Linux tcp_simple_retransmit).
Effects path_shrunk(Tcb& t, uint16_t mss, Instant now);

// ---- program
/// Copies bytes of `data` into send buffers and sums them, as many as snd_buf and the pool allow.
/// The last eighth of the pool is reserved for receiving. If that limit applied and nothing is
/// unacknowledged, no kWritable follows: try again when the pool has frames.
/// @return bytes taken, 0 = no room. Requires can_send(). `more`: MSG_MORE, hold a partial segment
/// back.
size_t append(Tcb& t, std::span<const iovec> data, bool more, Instant now);
/// In-order bytes that the program has not read. The socket layer reads, pops or trims them, then
/// calls consumed().
inline PacketChain& recv_queue(Tcb& t);
/// `least` bytes (SO_RCVLOWAT) can be read; or fewer, and the peer cannot send more because its
/// window is nearly closed: waiting for the rest would never end.
bool has_readable(const Tcb& t, uint32_t least);
/// Where frames are short: the payload of `s` may be dropped for the peer to retransmit.
inline bool may_wait(const Tcb& t, const Segment& s);
/// The program took `bytes` from recv_queue: opens the window. @return true: a window update is
/// due.
inline bool consumed(Tcb& t, uint32_t bytes, Instant now);
/// Sends a FIN after the queued data (shutdown(SHUT_WR), first half of close).
void shutdown_write(Tcb& t, Instant now);
/// The program will not read again: discards unread data, orphans the connection. If data was
/// unread, or arrives later, an RST is sent as Linux does (RFC 2525 §2.17; tcp(7)); otherwise a FIN
/// as by shutdown_write().
void close(Tcb& t, Instant now);
/// Sends an RST (if the state has a peer) and becomes kClosed once it is sent (SO_LINGER 0, out of
/// memory).
void abort(Tcb& t, Instant now);

/// Ends the connection at once and sends nothing: its owner found that it cannot continue. @return
/// its effects.
Effects fail(Tcb& t, int error);
/// As fail(), and sends an RST to the peer.
Effects evict(Tcb& t, int error);

// ---- urgent data (RFC 9293 §3.8.5, RFC 6093; urgent.cpp)
/// The last byte that append() took is urgent. Call before next_segment().
void mark_urgent(Tcb& t);
inline Urgent urgent(const Tcb& t);
/// Bytes in recv_queue before the marked byte; more than recv_queue has if it has not arrived.
/// Requires urgent() other than kNone.
uint64_t bytes_to_mark(const Tcb& t);
/// Returns the marked byte; the state becomes kTaken unless `peek`. Requires kThere.
std::byte take_urgent(Tcb& t, bool peek);

// ---- queries
/// `quoted` is the sequence number of a segment that was sent and is not acknowledged (RFC 5927
/// §4.1).
bool is_in_flight(const Tcb& t, Seq32 quoted);
inline State state(const Tcb& t);
/// The handshake is not complete, and until then nothing can be sent or read.
bool is_opening(const Tcb& t);
int error(const Tcb& t);  ///< errno of the failure, 0 = none; stays until the owner clears it
/// append() is allowed: ESTABLISHED or CLOSE_WAIT and no FIN queued.
inline bool can_send(const Tcb& t);
uint32_t send_room(const Tcb& t);  ///< bytes append() would take, memory permitting
/// POLLOUT of poll(2): a third of the buffer is free and, with TCP_NOTSENT_LOWAT, unsent bytes are
/// below half of that limit.
bool is_writable(const Tcb& t);
inline uint32_t unsent_bytes(const Tcb& t);  ///< SIOCOUTQNSD
uint32_t unacked_bytes(const Tcb& t);  ///< queued and not acknowledged, with the FIN: SIOCOUTQ
/// The FIN was received, and all data before it is in recv_queue or was read.
inline bool peer_closed(const Tcb& t);
/// How often the interval of zero-window probes has doubled since the peer closed its window; 0:
/// the window is open.
uint8_t shut_doublings(const Tcb& t);
uint16_t effective_mss(
    const Tcb& t);  ///< payload bytes of a full segment, less options (TCP_MAXSEG)

// ---- settings that may change on a live connection
void set_nodelay(Tcb& t, bool on, Instant now);
void set_cork(Tcb& t, bool on, Instant now);
void set_quickack(Tcb& t, bool on, Instant now);
void set_keepalive(Tcb& t, bool on, Duration idle, Duration interval, uint8_t count, Instant now);
void set_user_timeout(Tcb& t, Duration d);
/// Turns automatic tuning off. The advertised right edge never moves left (RFC 9293 §3.8.6).
void set_rcv_buf(Tcb& t, uint32_t bytes);
void set_snd_buf(Tcb& t, uint32_t bytes);
void set_max_pacing_rate(Tcb& t, uint64_t bytes_per_second);
void set_rto_min(Tcb& t, Duration d);
void set_fin_timeout(Tcb& t, Duration d);
/// The negotiated use of ECN does not change.
void set_congestion(Tcb& t, CcKind kind);
void set_rto_max(Tcb& t, Duration d);
void set_delack_max(Tcb& t, Duration d);
void set_syn_retries(Tcb& t, uint8_t n);
void set_window_clamp(Tcb& t, uint32_t bytes);
/// @return kWritable if this made the socket writable.
Effects set_notsent_lowat(Tcb& t, uint32_t bytes);
void set_oob_inline(Tcb& t, bool on);
/// `on`: every segment takes the general path in both directions, where it can be told.
void set_watched(Tcb& t, bool on);
/// TCP_QUICKACK reads as 1: the connection is not considered interactive.
bool is_quick(const Tcb& t);

/// State of a connection as plain data, for getsockopt(TCP_INFO), counters and hand-over. Sums
/// since the connection was opened.
struct InfoSums {
  uint64_t bytes_acked, bytes_received, bytes_sent, bytes_retrans;
  uint32_t segs_out, segs_in, data_segs_out, data_segs_in, reord_seen, rcv_ooopack, dsack_dups;
  uint32_t retransmits, total_retrans, tlp_probes, undos;
};
/// Measurements of the path.
struct InfoPath {
  Duration rto, srtt, rttvar, min_rtt, rcv_rtt;
  uint64_t pacing_rate;      ///< what the window allows per second, at most max_pacing_rate
  uint64_t max_pacing_rate;  ///< UINT64_MAX: no limit
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
  // Segments by assumed state, and what recovery has learned.
  uint32_t sacked, lost, retrans, reordering, reo_wnd_quarters;
  uint32_t notsent_bytes;
  Instant last_data_sent, last_data_recv, last_ack_recv;
};
Info info(const Tcb& t);

// ---- TIME_WAIT: the remaining state of a connection, 64 bytes with its keys (RFC 9293 §3.6.1, RFC
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
/// Decides on a segment for a TIME_WAIT entry: kAck sends `reply`; kRestart does too and restarts
/// 2MSL; kNewConnection gives the SYN to a listener (RFC 6191, compared modulo 2^32), with an ISN
/// above `snd_nxt`.
TimeWaitVerdict time_wait_input(TimeWait& w, const Segment& s, Instant now, Plan& reply);

/// The RST for a segment that matches no connection (RFC 9293 §3.10.7.1); false: none, the segment
/// is an RST itself.
bool reset_for(const Segment& s, uint32_t payload_bytes, Plan& reply);

}  // namespace vireo::tcp

namespace vireo {
template <>
inline constexpr bool kIsFlags<tcp::SegFlags> = true;
template <>
inline constexpr bool kIsFlags<tcp::Effects> = true;
}  // namespace vireo
