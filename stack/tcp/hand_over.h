// The state of an established connection that another TCP needs to go on with it: what Linux takes
// by TCP_REPAIR (tcp(7); Linux net/ipv4/tcp.c do_tcp_setsockopt). Out-of-order data is left out;
// the peer sends it again.
// Owner: the caller. Thread: holder of the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "core/seq.h"

namespace vireo::tcp {

struct Tcb;

struct HandOver {
  enum class Fin : uint8_t { kNone, kQueued, kSent, kAcked };

  Seq32 snd_una;                   ///< of the first of `to_send`, or of the FIN behind it
  Seq32 rcv_nxt;                   ///< behind the last of `unread`; the peer's FIN not counted
  std::vector<std::byte> to_send;  ///< not acknowledged
  uint32_t sent = 0;               ///< of them, those that have left already
  std::vector<std::byte> unread;
  uint16_t peer_mss = 536;
  uint8_t snd_wscale = 0, rcv_wscale = 0;
  bool wscale = false, sack = false, timestamps = false;
  uint32_t timestamp = 0;  ///< our clock's now
  Seq32 snd_wl1;
  Fin fin = Fin::kNone;   ///< ours
  bool peer_fin = false;  ///< received, and nothing is missing before it
  uint32_t snd_wnd = 0, max_wnd = 0, rcv_wnd = 0;
};

/// The Tcb stays as it is. Errors: EOPNOTSUPP it is not one that may go on elsewhere, for its
/// handshake is not over, urgent data is under way, or it ends: both FINs are said.
Result<HandOver> hand_over(Tcb& t, Instant now);
/// The program has neither read nor written yet.
bool is_untouched(Tcb& t);

}  // namespace vireo::tcp
