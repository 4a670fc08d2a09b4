// Loss recovery of the sender, by file:
//   scoreboard.cpp  marks and their sums; what SACK blocks and acknowledgements do to them
//   rack.cpp        which transmission is lost, by time (RFC 8985 §6), and the tail loss probe (§7)
//   recovery.cpp    what an ACK means: round trips, episodes, windows (RFC 9937), undo, timeouts
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

/// What an acceptable ACK says (snd_una <= ack <= snd_max).
struct AckEvent {
  StreamOffset ack = 0;
  std::span<const wire::SackBlock> sack;  ///< as received, unchecked
  bool has_ts = false;
  uint32_t ts_echo = 0;
  bool duplicate = false;  ///< RFC 5681 §2: acknowledges nothing new, no data, no window update
  Instant now;
};

/// What an ACK delivered, bytes that no earlier one told of.
struct Delivered {
  uint32_t bytes = 0;     ///< in order or not
  uint32_t sacked = 0;    ///< of these, out of order
  Instant sent_at;        ///< latest first transmission among them
  bool once = false;      ///< sent_at is valid
  bool twice = false;     ///< the ACK covers something that was sent more than once
  bool original = false;  ///< ... something outstanding at the timeout and never sent again
  bool dsack = false;
  StreamOffset dsack_end = 0;
};

// ---- scoreboard.cpp
/// Moves snd_una to `a.ack` and frees what lies before it.
void advance(Tcb& t, const AckEvent& a, Delivered& d);
/// Takes the blocks of an ACK, after advance(). Those outside [snd_una, snd_max] are ignored; a
/// bounded number of descriptors is marked, the rest when the blocks come again.
void take_sack(Tcb& t, const AckEvent& a, Delivered& d);
/// The descriptor's latest transmission is lost: it waits to be sent again.
void mark_lost(Tcb& t, uint32_t index);
/// [offset, end) of it was sent again.
void mark_retransmitted(Tcb& t, uint32_t index, StreamOffset end, Instant now);
/// Bytes of a sent descriptor that joined the outstanding ones.
void count_more(Tcb& t, SendDesc& s, uint32_t bytes);
/// The descriptor to send again next and where in it. Requires rtx_due > 0.
uint32_t next_lost(Tcb& t, StreamOffset& at);
/// A timeout: forgets what was SACKed (RFC 2018 §8) and takes everything for lost but what was sent
/// after `since` (RFC 8985 §6.3); the first descriptor always.
void lose_outstanding(Tcb& t, Instant since);
/// Nothing was lost after all.
void clear_lost(Tcb& t);

// ---- rack.cpp
/// A transmission was delivered (RFC 8985 §6.2 steps 2 and 3). Not if it is unknown which one.
void rack_delivered(Tcb& t, const SendDesc& s, const AckEvent& a);
/// Step 4: a DSACK widens the reordering window, recoveries without one narrow it.
void rack_adapt(Tcb& t, const Delivered& d);
void rack_recovered(Tcb& t);
/// What was delivered last is not known after all; the next delivery tells.
void rack_forget(Tcb& t);
/// Step 5: marks what is lost by `now`. If Tcb::suspects, look again at Scoreboard::reorder_at.
void rack_detect_loss(Tcb& t, Instant now);
/// How long after its transmission, at the latest, something is taken for lost.
Duration rack_patience(Tcb& t);
constexpr Duration kMaxAckDelay = Duration::ms(50);  ///< a Linux receiver's 40 and its clock's tick
constexpr Duration kFirstProbe = Duration::s(1);     ///< RFC 8985 §7.2: no round trip is known
/// How long to wait before a tail loss probe; may be sent only if tlp_allowed().
inline Duration tlp_timeout(Tcb& t, Instant now) {
  if (!t.rtt.has_sample()) return kFirstProbe;
  const Duration srtt = t.rtt.srtt;
  const Duration d = std::max(srtt * 2, RttEstimator::kGranularity * 2);
  if (t.outstanding() >= 2ULL * t.mss) return d;
  // A receiver may delay the ACK of less than two full segments.
  if (t.queue.board().tlp_prompt != t.snd_nxt) return d + kMaxAckDelay;
  // It did, and waited in vain for what is left: that time counts.
  return std::clamp(t.last_sent + srtt + d - now, d / 2, d);
}
bool tlp_allowed(const Tcb& t);
/// An ACK of one full segment alone: may the ACK of what it left in flight be delayed?
void tlp_judge_delay(Tcb& t, const Delivered& d);
void tlp_sent(Tcb& t, StreamOffset end, bool retransmitted);
/// RFC 8985 §7.4. @return true: the probe repaired a loss, congestion control must know.
bool tlp_on_ack(Tcb& t, const AckEvent& a, const Delivered& d, bool advanced);

// ---- recovery.cpp
/// `bytes` at `offset` were sent again.
void note_retransmission(Tcb& t, StreamOffset offset, uint32_t bytes, Instant now);
/// An acceptable ACK arrived: frees, measures, finds losses, moves cwnd, re-arms.
Effects on_ack(Tcb& t, const AckEvent& a);
/// The reordering timer expired.
void on_reorder_timer(Tcb& t, Instant now);
/// The retransmission timer expired (RFC 6298 §5.4-5.6).
void lose_all(Tcb& t, Instant now);

}  // namespace vireo::tcp
