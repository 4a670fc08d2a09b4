// Congestion control: a small state and a switch over the algorithms (not virtual: the choice is
// one predicted branch). It sets the congestion window; recovery.h detects loss and sets cwnd
// during recovery. Windows are in bytes.
// Owner: a Tcb. Thread: holder of its engine's lock.
// Source: RFC 5681, RFC 3465 (byte counting, L = 2), RFC 6928 (initial window), RFC 9438 (CUBIC),
// RFC 9406 (HyStart++), RFC 8257 (DCTCP), RFC 8511 (ABE).
//
//   cc_start                       the connection is established
//   cc_on_ack                      at every ACK of new data
//   cc_on_congestion               a loss, an ECN echo or a timeout was seen: an episode begins
//     ... recovery moves cwnd ...  (cc_on_ack with `recovering`)
//   cc_recovered                   all that was outstanding when it began is acknowledged
//   cc_undo                        it was spurious (RFC 3522, 5682, 2883): in the episode or later
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/clock.h"
#include "core/seq.h"
#include "stack/tcp/cubic.h"
#include "stack/tcp/dctcp.h"
#include "stack/tcp/hystart.h"

namespace vireo::tcp {

enum class CcKind : uint8_t {
  kReno,
  kCubic,
  kDctcp,
  kNone,  ///< no control: only the peer's window limits (libvma's VMA_TCP_CC_ALGO=2)
};

/// Kind of congestion event.
enum class CcEvent : uint8_t {
  kLoss,     ///< duplicate ACKs, SACK or RACK
  kEcn,      ///< the peer echoed CE
  kTimeout,  ///< the retransmission timer expired
};

struct CongestionControl {
  static constexpr uint32_t kMaxWindow = 1U << 30;

  uint32_t cwnd = 0;
  uint32_t ssthresh = 0;
  uint32_t acked = 0;       ///< bytes acknowledged since cwnd last grew, in congestion avoidance
  uint32_t prior_cwnd = 0;  ///< before the latest congestion episode; 0: nothing to undo
  uint32_t prior_ssthresh = 0;
  CcKind kind = CcKind::kReno;
  bool in_episode = false;        ///< ssthresh was lowered and cc_recovered() was not called yet
  bool first_slow_start = false;  ///< CUBIC: in the first slow start, under HyStart++
  union {                         // active member by `kind`; CUBIC uses HyStart first, then Cubic
    HyStart hystart;
    Cubic cubic;
    Dctcp dctcp;
  };

  CongestionControl() : hystart() {}

  bool in_slow_start() const { return cwnd < ssthresh; }
};
static_assert(sizeof(CongestionControl) <= 64);

/// Input of cc_on_ack(), from an ACK of new data. Bytes.
struct CcAck {
  uint32_t acked = 0;         ///< newly delivered: acknowledged or SACKed for the first time
  uint32_t flight = 0;        ///< in flight before it
  uint32_t mss = 0;           ///< payload of a full segment
  bool cwnd_limited = false;  ///< the window was in use when this was sent (RFC 7661)
  bool recovering = false;    ///< recovery sets cwnd: update state, do not grow
  bool ece = false;           ///< the peer echoes CE
  Duration rtt{};             ///< RTT sample, zero: none
  Duration srtt{};
  Duration min_rtt{};
  StreamOffset snd_una = 0;  ///< after it
  StreamOffset snd_nxt = 0;
};

/// Its name for TCP_CONGESTION.
constexpr std::string_view cc_name(CcKind k) {
  constexpr std::string_view kNames[] = {"reno", "cubic", "dctcp", "none"};
  return kNames[static_cast<unsigned>(k)];
}
/// Kind by TCP_CONGESTION's name; nullopt: not one that a program may choose.
constexpr std::optional<CcKind> cc_kind(std::string_view name) {
  for (const CcKind k : {CcKind::kReno, CcKind::kCubic, CcKind::kDctcp})
    if (cc_name(k) == name) return k;
  return std::nullopt;
}

/// The connection is established. `syn_lost`: start with one segment (RFC 5681 §3.1). Resets all
/// state.
void cc_start(CongestionControl& c, CcKind kind, uint32_t mss, bool syn_lost);
/// Changes the algorithm: the window stays, the old algorithm's state is discarded.
void cc_change(CongestionControl& c, CcKind kind);
/// Grows the window by the bytes acknowledged, only if the window was in use.
void cc_on_ack(CongestionControl& c, const CcAck& a, Instant now);
/// Lowers ssthresh by the algorithm's factor and saves state for cc_undo(), once per episode:
/// repeats before cc_recovered() lower nothing (RFC 5681 §3.1, RFC 6582 §3.2). Each kTimeout sets
/// cwnd to one segment, kEcn sets it to ssthresh; kLoss leaves it to recovery.
/// `flight`: bytes in flight, lost ones included.
void cc_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss, Instant now);
/// The episode is over. State for cc_undo() is kept until the next one.
void cc_recovered(CongestionControl& c);
/// The latest episode was spurious: restores the state before it. cwnd is never lowered; without an
/// episode to undo nothing changes.
void cc_undo(CongestionControl& c);
/// Data is sent after an idle time of `idle`, longer than `rto`, with nothing outstanding (RFC 5681
/// §4.1 restart window).
void cc_on_idle(CongestionControl& c, uint32_t mss, Duration idle, Duration rto);

/// RFC 6928 §2: min(10 MSS, max(2 MSS, 14600)).
constexpr uint32_t initial_window(uint32_t mss) {
  return std::min(10 * mss, std::max(2 * mss, 14600U));
}

}  // namespace vireo::tcp
