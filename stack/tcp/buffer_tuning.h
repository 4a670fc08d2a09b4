// Grows the buffers with the path, for sockets whose program did not set a size.
//
// Receive buffer: twice what the program read in a round trip, and more while that grows, so that
// the sender's slow start is not limited. Send buffer: twice the congestion window. Neither
// shrinks, so the window's edge never moves left. Neither grows beyond the maximum of Linux's
// sysctl, while half of the frames are in use, or during window sharing
// (stack/engine/window_sharing.cpp).
// Owner: a Tcb. Thread: holder of its engine's lock.
// Source: tcp(7) tcp_moderate_rcvbuf, tcp_rmem, tcp_wmem; Fisk and Feng's dynamic right-sizing.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "core/compact_duration.h"

namespace vireo::tcp {

struct Tcb;

struct BufferTuning {
  Instant round_at;     ///< when this round began
  Micros rtt;           ///< as measured by the receiver; zero: unknown
  uint32_t copied = 0;  ///< read by the program since
  uint32_t space = 0;   ///< most read in a round
  union {
    uint32_t echo = 0;    ///< newest of our timestamps echoed with data
    uint32_t window_end;  ///< without timestamps: low half of an offset, 0: not known
  };
  Instant window_at;  ///< when `window_end` was the window's edge
};

/// Data arrived with `echo`; a new value gives a sample of the round trip. Clock: 1 ms; below that,
/// our own sender's estimate.
void measure_by_echo(Tcb& t, uint32_t echo, Instant now);
/// The program took `bytes`. Defined in tcb.h.
inline void tune_receive(Tcb& t, uint32_t bytes, Instant now);
/// Its parts: the measurement without timestamps, by rounds of the window; growth after a round in
/// which the program read more than in any before.
void measure_by_window(Tcb& t, Instant now);
void grow_receive(Tcb& t);
/// The congestion window may have grown.
void tune_send(Tcb& t);

}  // namespace vireo::tcp
