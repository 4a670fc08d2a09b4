// Loss recovery of the sender, by file:
//   scoreboard.cpp  marks and their sums; effect of SACK blocks and ACKs on them
//   rack.cpp        loss detection by time (RFC 8985 §6) and the tail loss probe (§7)
//   recovery.cpp    ACK processing: round trips, episodes, windows (RFC 9937), undo, timeouts
// Private to stack/tcp. Owner: a Tcb. Thread: holder of its engine's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/clock.h"
#include "core/seq.h"
#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {

constexpr uint8_t kDupThresh = 3;  // RFC 5681 §3.2

/// Contents of an acceptable ACK (snd_una <= ack <= snd_max).
struct AckEvent {
  StreamOffset ack = 0;
  std::span<const wire::SackBlock> sack;  ///< as received, unchecked
  bool has_ts = false;
  uint32_t ts_echo = 0;
  bool duplicate = false;  ///< RFC 5681 §2: acknowledges nothing new, no data, no window update
  Instant now;
};

/// What an ACK newly reports as delivered, in bytes.
struct Delivered {
  uint32_t bytes = 0;     ///< in order or not
  uint32_t sacked = 0;    ///< of these, SACKed
  Instant sent_at;        ///< latest transmission time of data sent only once
  bool once = false;      ///< sent_at is valid
  bool twice = false;     ///< the ACK covers data that was sent more than once
  bool original = false;  ///< the ACK covers data outstanding at the timeout and never sent again
  bool dsack = false;
  StreamOffset dsack_end = 0;
};

// ---- scoreboard.cpp
/// Moves snd_una to `a.ack` and frees what precedes it.
void advance(Tcb& t, const AckEvent& a, Delivered& d);
/// Processes the SACK blocks of an ACK, after advance(). Blocks outside [snd_una, snd_max] are
/// ignored. The number of descriptors marked per ACK is limited; the rest are marked when the
/// blocks repeat.
void take_sack(Tcb& t, const AckEvent& a, Delivered& d);
/// Marks the descriptor's latest transmission as lost, to be sent again.
void mark_lost(Tcb& t, uint32_t index);
/// [offset, end) of the descriptor was retransmitted.
void mark_retransmitted(Tcb& t, uint32_t index, StreamOffset end, Instant now);
/// `bytes` more of a sent descriptor are outstanding now.
void count_more(Tcb& t, SendDesc& s, uint32_t bytes);
/// The next descriptor to retransmit, and the offset in it. Requires rtx_due > 0.
uint32_t next_lost(Tcb& t, StreamOffset& at);
/// A timeout: clears SACK marks (RFC 2018 §8) and marks as lost the first descriptor and all that
/// were not sent after `since` (RFC 8985 §6.3).
void lose_outstanding(Tcb& t, Instant since);
/// Clears all loss marks: the episode was spurious.
void clear_lost(Tcb& t);

// ---- rack.cpp
/// A transmission was delivered (RFC 8985 §6.2 steps 2 and 3). Ignored if it is ambiguous which
/// one.
void rack_delivered(Tcb& t, const SendDesc& s, const AckEvent& a);
/// Step 4: a DSACK widens the reordering window, recoveries without one narrow it.
void rack_adapt(Tcb& t, const Delivered& d);
void rack_recovered(Tcb& t);
/// Forgets the latest delivered transmission; the next delivery sets it.
void rack_forget(Tcb& t);
/// Step 5: marks what is lost by `now`. If Tcb::suspects is set, call again at
/// Scoreboard::reorder_at.
void rack_detect_loss(Tcb& t, Instant now);
/// The longest time after its transmission at which data is marked lost.
Duration rack_patience(Tcb& t);
constexpr Duration kMaxAckDelay = Duration::ms(50);  ///< Linux's 40 ms and a clock tick
constexpr Duration kFirstProbe = Duration::s(1);     ///< RFC 8985 §7.2: without an RTT sample
/// Time to wait before a tail loss probe; it may be sent only if tlp_allowed().
inline Duration tlp_timeout(Tcb& t, Instant now) {
  if (!t.rtt.has_sample()) return kFirstProbe;
  const Duration srtt = t.rtt.srtt;
  const Duration d = std::max(srtt * 2, RttEstimator::kGranularity * 2);
  if (t.outstanding() >= 2ULL * t.mss) return d;
  // A receiver may delay the ACK of less than two full segments.
  if (t.queue.board().tlp_prompt != t.snd_nxt) return d + kMaxAckDelay;
  // The receiver's delayed-ACK time has passed: it is part of the wait.
  return std::clamp(t.last_sent + srtt + d - now, d / 2, d);
}
bool tlp_allowed(const Tcb& t);
/// An ACK covers exactly one full segment: determines if the receiver may delay the ACK of the data
/// that remains in flight.
void tlp_judge_delay(Tcb& t, const Delivered& d);
void tlp_sent(Tcb& t, StreamOffset end, bool retransmitted);
/// RFC 8985 §7.4. @return true: the probe repaired a loss, and congestion control must react.
bool tlp_on_ack(Tcb& t, const AckEvent& a, const Delivered& d, bool advanced);

// ---- recovery.cpp
/// `bytes` at `offset` were retransmitted.
void note_retransmission(Tcb& t, StreamOffset offset, uint32_t bytes, Instant now);
/// Processes an acceptable ACK: frees data, measures, detects loss, sets cwnd, re-arms timers.
Effects on_ack(Tcb& t, const AckEvent& a);
/// The reordering timer expired.
void on_reorder_timer(Tcb& t, Instant now);
/// The retransmission timer expired (RFC 6298 §5.4-5.6).
void lose_all(Tcb& t, Instant now);

}  // namespace vireo::tcp
