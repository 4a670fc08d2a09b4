// Congestion control: a small state and a switch over the algorithms (not virtual: the choice is
// one predicted branch). It says how large the window is; what is lost, and what happens to cwnd
// while that is repaired, is recovery's business. Windows are in bytes.
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
  kNone,  ///< no control: the peer's window alone (libvma's VMA_TCP_CC_ALGO=2)
};

/// What ended an episode of growth.
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
  uint32_t prior_cwnd = 0;  ///< before the latest episode; 0: nothing to undo
  uint32_t prior_ssthresh = 0;
  CcKind kind = CcKind::kReno;
  bool in_episode = false;        ///< ssthresh was lowered and cc_recovered() did not come yet
  bool first_slow_start = false;  ///< CUBIC's, by HyStart++
  union {                         // by kind; CUBIC's are alive one after the other
    HyStart hystart;
    Cubic cubic;
    Dctcp dctcp;
  };

  CongestionControl() : hystart() {}

  bool in_slow_start() const { return cwnd < ssthresh; }
};
static_assert(sizeof(CongestionControl) <= 64);

/// What an ACK of new data tells. Bytes.
struct CcAck {
  uint32_t acked = 0;         ///< newly delivered: acknowledged by it, or SACKed first by it
  uint32_t flight = 0;        ///< in flight before it
  uint32_t mss = 0;           ///< payload of a full segment
  bool cwnd_limited = false;  ///< the window was in use when this was sent (RFC 7661)
  bool recovering = false;    ///< recovery owns cwnd: learn, do not grow
  bool ece = false;           ///< the peer echoes CE
  Duration rtt{};             ///< its sample, zero: none
  Duration srtt{};
  Duration min_rtt{};
  StreamOffset snd_una = 0;  ///< after it
  StreamOffset snd_nxt = 0;
};

/// The name that TCP_CONGESTION has for it.
constexpr std::string_view cc_name(CcKind k) {
  constexpr std::string_view kNames[] = {"reno", "cubic", "dctcp", "none"};
  return kNames[static_cast<unsigned>(k)];
}
/// By TCP_CONGESTION's name; nullopt: not one that a program may choose.
constexpr std::optional<CcKind> cc_kind(std::string_view name) {
  for (const CcKind k : {CcKind::kReno, CcKind::kCubic, CcKind::kDctcp})
    if (cc_name(k) == name) return k;
  return std::nullopt;
}

/// The connection is established. `syn_lost`: one segment (RFC 5681 §3.1). Forgets everything.
void cc_start(CongestionControl& c, CcKind kind, uint32_t mss, bool syn_lost);
/// Another algorithm from now on: the window stays, what the old one had learned is forgotten.
void cc_change(CongestionControl& c, CcKind kind);
/// Grows the window, by what was acknowledged and only if it was in use.
void cc_on_ack(CongestionControl& c, const CcAck& a, Instant now);
/// Lowers ssthresh by the algorithm's factor and remembers what cc_undo() needs, once an episode: a
/// repeat before cc_recovered() lowers nothing (RFC 5681 §3.1, RFC 6582 §3.2). kTimeout makes cwnd
/// one segment each time, kEcn brings it to ssthresh; kLoss leaves it to recovery.
/// `flight`: bytes in flight, what is lost included.
void cc_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss, Instant now);
/// The episode is over. What cc_undo() needs stays until the next.
void cc_recovered(CongestionControl& c);
/// The latest episode was spurious: as if it had never been. cwnd is never lowered; without an
/// episode to undo nothing happens.
void cc_undo(CongestionControl& c);
/// Data follows a silence of `idle`, longer than `rto`, with nothing outstanding (RFC 5681 §4.1
/// restart window).
void cc_on_idle(CongestionControl& c, uint32_t mss, Duration idle, Duration rto);

/// RFC 6928 §2: min(10 MSS, max(2 MSS, 14600)).
constexpr uint32_t initial_window(uint32_t mss) {
  return std::min(10 * mss, std::max(2 * mss, 14600U));
}

}  // namespace vireo::tcp
