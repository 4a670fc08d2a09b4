// A half-open connection of a listener: the state kept from the SYN until the third segment, in one
// cache line. There is no Tcb and no buffer; a SYN-ACK is rebuilt from it for retransmission.
//
// Owner: the engine's SynTable. Thread: holder of that engine's lock. Sans-IO as the rest of the
// folder. Source: RFC 9293 §3.10.7.2 and §3.10.7.4 for SYN-RECEIVED after a passive open, RFC 4987
// §3.4 (SYN cache); Linux's tcp_check_req for the order of checks.
#pragma once

#include "core/address.h"
#include "stack/tcp/tcp.h"

namespace vireo::tcp {

struct SynRecord {
  IpAddr local;
  IpAddr remote;
  uint16_t local_port = 0;  ///< host order
  uint16_t remote_port = 0;
  Seq32 irs;
  Seq32 iss;
  uint32_t ts_recent = 0;
  uint32_t sent_at = 0;  ///< when the last SYN-ACK left, in units of 1.024 us, modulo 2^32
  uint16_t mss = 0;      ///< the peer's
  uint16_t listener = 0;
  uint64_t next : 24 = 0;  ///< links of SynTable: indices of records
  uint64_t prev : 24 = 0;
  uint64_t timeouts : 5 = 0;  ///< timeouts of the SYN-ACK
  uint64_t wscale : 4 = 0;    ///< the peer's shift
  uint64_t wscale_on : 1 = 0;
  uint64_t ts_on : 1 = 0;
  uint64_t sack_on : 1 = 0;
  uint64_t ecn_on : 1 = 0;      ///< the SYN requested ECN and we accept (RFC 3168 §6.1.1)
  uint64_t acked : 1 = 0;       ///< a valid third segment was not accepted (full, deferred)
  uint64_t is_retried : 1 = 0;  ///< two SYN-ACKs were sent: no RTT sample (Karn)
  uint64_t is_cookie : 1 = 0;   ///< not stored: the SYN-ACK encodes it

  static uint32_t stamp(Instant t) {
    return static_cast<uint32_t>(static_cast<uint64_t>(t.ns()) >> 10);
  }
  /// When the last SYN-ACK was sent, rounded down; `now` is at most an hour later.
  Instant sent(Instant now) const {
    return Instant::from_ns((now.ns() >> 10 << 10) -
                            (static_cast<int64_t>(stamp(now) - sent_at) << 10));
  }
};
static_assert(sizeof(SynRecord) == 64);

/// Fills in the SYN's fields and the options that `c` allows.
void adopt_syn(SynRecord& r, const Config& c, const Segment& syn);
/// The SYN-ACK. `c`: the listener's, with the path's MSS and the tuple's timestamp offset.
void plan_syn_ack(const SynRecord& r, const Config& c, Instant now, Plan& p);
/// Adds the Fast Open option: to a SYN-ACK, the cookie that the SYN requested; to a SYN, our
/// cookie, or an empty one to request it (RFC 7413 §4.1.1). Left out if there is no room.
void add_fast_open(Plan& p, std::span<const uint8_t> cookie);
/// An ACK of the current state, for an unacceptable segment (RFC 9293 §3.10.7.4, RFC 5961).
void plan_record_ack(const SynRecord& r, const Config& c, Instant now, Plan& p);

enum class SynVerdict : uint8_t {
  kDrop,
  kRepeat,     ///< a repeated SYN: send the SYN-ACK again
  kChallenge,  ///< answer with plan_record_ack(), rate-limited
  kReset,      ///< an unacceptable ACK: answer with reset_for(); the record stays
  kGone,       ///< the peer reset it: remove the record
  kOpen,       ///< the third segment: open_from_record(), then input() of this segment
};
/// Decides on a segment of this tuple; may update ts_recent.
SynVerdict syn_record_input(SynRecord& r, const Config& c, const Segment& s);

/// Opens the connection in the state after its SYN-ACK was sent, SYN_RECEIVED. input() of the third
/// segment establishes it.
void open_from_record(Tcb& t, const Config& c, PacketPool& pool, const SynRecord& r, Instant now);

}  // namespace vireo::tcp
