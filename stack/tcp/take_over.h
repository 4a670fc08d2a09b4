// The state by which an established connection of another TCP is continued here, as Linux gives it
// by TCP_REPAIR (tcp(7); Linux net/ipv4/tcp.c do_tcp_getsockopt): the reverse of hand_over.h.
// Nothing that the other sent is unacknowledged, and it holds nothing out of order.
// Owner: the caller. Thread: holder of the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/clock.h"
#include "core/packet.h"
#include "core/seq.h"

namespace vireo::tcp {

struct Tcb;
struct Config;

struct TakeOver {
  Seq32 snd_nxt;
  Seq32 rcv_nxt;                      ///< end of `unread`
  Seq32 rcv_acked;                    ///< acknowledged so far
  Seq32 rcv_adv;                      ///< right edge of the window that the peer was told
  std::span<const std::byte> unread;  ///< what the program has not read
  uint16_t peer_mss = 536;
  uint8_t snd_wscale = 0, rcv_wscale = 0;
  bool wscale = false, sack = false, timestamps = false, ecn = false;
  uint32_t timestamp = 0;  ///< the other's timestamp clock, now
  Seq32 snd_wl1;
  uint32_t snd_wnd = 0, max_wnd = 0;
  Duration srtt{};  ///< zero: not known
};

/// Opens `t` in state ESTABLISHED. @return false: no buffers for `unread`; `t` is closed.
bool open_taken_over(Tcb& t, const Config& c, PacketPool& pool, const TakeOver& o, Instant now);

}  // namespace vireo::tcp
