// The state that another TCP needs to continue an established connection, as Linux takes it by
// TCP_REPAIR (tcp(7); Linux net/ipv4/tcp.c do_tcp_setsockopt). Out-of-order data is left out; the
// peer retransmits it.
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

  Seq32 snd_una;                   ///< of the first byte of `to_send`, or of the FIN after it
  Seq32 rcv_nxt;                   ///< end of `unread`; the peer's FIN not counted
  std::vector<std::byte> to_send;  ///< not acknowledged
  uint32_t sent = 0;               ///< bytes of to_send that were sent already
  std::vector<std::byte> unread;
  uint16_t peer_mss = 536;
  uint8_t snd_wscale = 0, rcv_wscale = 0;
  bool wscale = false, sack = false, timestamps = false;
  uint32_t timestamp = 0;  ///< our timestamp clock at `taken`, ms
  Instant taken{};
  Seq32 snd_wl1;
  Fin fin = Fin::kNone;   ///< ours
  bool peer_fin = false;  ///< received, with all data before it
  uint32_t snd_wnd = 0, max_wnd = 0, rcv_wnd = 0;
};

/// Does not change the Tcb. Errors: EOPNOTSUPP if the handshake is not complete, urgent data is
/// pending, or the connection is ending.
Result<HandOver> hand_over(Tcb& t, Instant now);
/// True if the program has neither read nor written yet.
bool is_untouched(Tcb& t);

}  // namespace vireo::tcp
