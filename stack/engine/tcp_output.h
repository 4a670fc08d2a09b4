// From the protocol to the ring: which segments a connection sends, with which header, and when: at
// once, with the turn, later as a delayed ACK, or when its neighbour is known.
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
  /// `f` has something to send; it leaves with the turn.
  void want(TcpFlow& f) noexcept;
  /// Sends what may leave now. @return false: the ring is full or the burst limit is reached, and
  /// the flow has more to send.
  bool transmit(TcpFlow& f, SendBy by, Instant now) noexcept;
  /// Sends one segment, without updating the Tcb. @return false: the ring is full.
  bool emit(TcpFlow& f, const tcp::Plan& plan, Doorbell bell) noexcept;
  void count_sent(TcpFlow& f, uint64_t segments, size_t header, uint32_t payload) noexcept;

  /// Sends all that waits for the turn, and all delayed ACKs.
  void flush(Instant now) noexcept;
  /// The same for a turn that returns to the program: connections that have only an ACK to send
  /// wait with it, until the program has waited several times for all its sockets, or has called
  /// several times in vain.
  void flush_to_return(Instant now) noexcept;
  /// Neighbours or routes changed, or time passed: stalled flows try again.
  void retry_stalled(Instant now) noexcept;
  void retry_stalled_if_due(Instant now) noexcept;

  bool has_pending() const noexcept { return !pending_.empty(); }
  bool has_delayed_acks() const noexcept { return !delayed_acks_.empty(); }
  /// Connections that wait in any of these lists.
  size_t waiting() const noexcept {
    return pending_.size() + delayed_acks_.size() + stalled_.size();
  }
  /// When retry_stalled() or flush() is due at the latest, pending flows aside.
  Instant deadline(Instant now) const noexcept;

 private:
  using Waiting = FlowList<TcpFlow, &TcpFlow::pending_hook>;

  // tcp_output.cpp
  template <bool kWatched>
  bool transmit_as(TcpFlow& f, SendBy by, Instant now) noexcept;
  bool transmit_watched(TcpFlow& f, SendBy by, Instant now) noexcept;
  void transmit_all(Waiting& flows, Instant now) noexcept;
  void stall(TcpFlow& f, const tcp::Plan& plan, const Err& why, Instant now) noexcept;

  // tcp_frames.cpp
  unsigned send_jumbo(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                      Instant now) noexcept;
  unsigned send_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                      Instant now) noexcept;
  bool emit_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                  Doorbell bell) noexcept;
  void tell_left(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst* burst, uint32_t bytes,
                 int64_t left_at) noexcept;
  unsigned emit_run(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                    Instant now) noexcept;

  Hub& hub() const noexcept;
  uint8_t ack_clock_ = 0;    ///< for TcpFlow::ack_delayed_at
  Instant next_ack_tick_{};  ///< when the ACK clock advances by itself
  Waiting pending_;          ///< for the turn
  Waiting delayed_acks_;     ///< ACKs that data may carry; oldest first
  Waiting stalled_;          ///< for a neighbour
  Instant stalled_retried_{};
};

}  // namespace vireo
