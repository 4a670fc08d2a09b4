// From the protocol to the ring: what a connection wants to say, the header it is said with, and
// when: at once, with the turn, later as a delayed ACK, or once its neighbour is known.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include "stack/engine/doorbell_policy.h"
#include "stack/engine/flow.h"
#include "stack/engine/part.h"
#include "stack/tcp/burst.h"

namespace vireo {

struct Hub;

class TcpOutput : Part {
 public:
  /// `f` has something to send: with the turn.
  void want(TcpFlow& f) noexcept;
  /// Sends what may leave now. @return false: the ring is full or the burst is over, and the flow
  /// has more to send.
  bool transmit(TcpFlow& f, SendBy by, Instant now) noexcept;
  /// One segment, without its books. @return false: the ring is full.
  bool emit(TcpFlow& f, const tcp::Plan& plan, Doorbell bell) noexcept;
  void count_sent(TcpFlow& f, uint64_t segments, size_t header, uint32_t payload) noexcept;

  /// What waits for the turn is sent, delayed ACKs too.
  void flush(Instant now) noexcept;
  /// The same of a turn that returns to the program: who has no more to send than an ACK that may
  /// wait does so, for a while, until the program has waited some times for all that it looks
  /// after, or has called again and again in vain.
  void flush_to_return(Instant now) noexcept;
  /// Neighbours or routes changed, or time passed: whoever waits for them tries again.
  void retry_stalled(Instant now) noexcept;
  void retry_stalled_if_due(Instant now) noexcept;

  bool has_pending() const noexcept { return !pending_.empty(); }
  bool has_delayed_acks() const noexcept { return !delayed_acks_.empty(); }
  /// Connections that wait for any of these.
  size_t waiting() const noexcept {
    return pending_.size() + delayed_acks_.size() + stalled_.size();
  }
  /// When what is not pending has to be looked at again: stalled flows, delayed ACKs.
  Instant deadline(Instant now) const noexcept;

 private:
  using Waiting = FlowList<TcpFlow, &TcpFlow::pending_hook>;

  // tcp_output.cpp
  void transmit_all(Waiting& flows, Instant now) noexcept;
  void stall(TcpFlow& f, const tcp::Plan& plan, const Err& why, Instant now) noexcept;

  // tcp_frames.cpp
  unsigned send_jumbo(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                      Instant now) noexcept;
  unsigned send_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                      Instant now) noexcept;
  bool emit_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                  Doorbell bell) noexcept;
  unsigned emit_run(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                    Instant now) noexcept;

  Hub& hub() const noexcept;
  uint8_t ack_clock_ = 0;    ///< TcpFlow::ack_delayed_at
  Instant next_ack_tick_{};  ///< it goes on by itself
  Waiting pending_;          ///< for the turn
  Waiting delayed_acks_;     ///< have an ACK to send that data may carry; the longest first
  Waiting stalled_;          ///< for a neighbour
  Instant stalled_retried_{};
};

}  // namespace vireo
