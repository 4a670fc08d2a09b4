// A turn of the engine: one burst from every queue, due timers, output, then notifications; most
// urgent first. Work that can wait is left to a turn that finds no frames.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;

/// The kind of call to which a turn returns.
enum class PollOf : uint8_t {
  kNobody,  ///< no such call
  kCall,    ///< recv, accept, connect: the program may still be answering earlier events
  kWait,    ///< epoll_wait, poll, select, or a blocking call: it has answered them
};

/// Half-open connections, and TIME-WAIT entries, that expire in one turn at most.
inline constexpr unsigned kExpiriesPerTurn = 32;

class Turn : Part {
 public:
  /// Frames after which rings are served even if every turn has found frames: else the device would
  /// run out of empty buffers.
  static constexpr unsigned kMaxUnserved = 256;

  /// `tables`: initial generation of the kernel's tables.
  explicit Turn(uint64_t tables) : tables_seen_(tables) {}

  /// For a program that polls. @return true if a frame was handled.
  bool poll(Instant now) noexcept;
  /// The same for a call that returns to the program with what arrived. A delayed ACK waits for
  /// some such turns, because the program's next send or close carries it. The program may first
  /// serve many other sockets, until it waits again for all of them.
  bool poll_to_return(Instant now, PollOf of) noexcept {
    of_ = of;
    const bool is_worked = poll(now);
    of_ = PollOf::kNobody;
    return is_worked;
  }
  /// A turn for any caller. @return as poll().
  bool run(Instant now) noexcept;
  /// poll_to_return() after the only queue returned the first `n` frames.
  bool go_on_to_return(Instant now, PollOf of, unsigned n) noexcept;
  /// The rest of poll_to_return() after its only frame was handled.
  bool finish_to_return(Instant now, PollOf of) noexcept;
  /// Counts a turn that has handled one frame. @return true: there is more work, call
  /// finish_to_return(). Inlined into the caller, in fast_path/receive_awaited.h.
  bool must_finish(Instant now) noexcept;

  PollOf of() const noexcept { return of_; }
  /// Consecutive turns without frames or other work.
  unsigned idle_turns() const noexcept { return idle_turns_; }
  /// Something was done: buffers that the device has read are reaped in the next turn without
  /// frames.
  void end_idling() noexcept { idle_turns_ = 0; }
  /// The published deadline may be too late.
  void move_deadline() noexcept { is_deadline_moved_ = true; }
  /// Work waits for the next turn: sleepers and the helper must know.
  void note_work() noexcept {
    idle_turns_ = 0;
    is_deadline_moved_ = true;
  }
  /// Publishes the earliest time at which something is due.
  void publish_deadline(Instant now) noexcept;
  /// The kernel's tables changed: tells the devices and retries stalled flows.
  void heed_tables(Instant now) noexcept;

 private:
  bool is_quiet(Instant now) const noexcept;
  bool run_here(Instant now) noexcept;
  bool end(Instant now, unsigned frames) noexcept;
  bool end_in_full(Instant now, unsigned frames) noexcept;
  unsigned receive_from(size_t first, Instant now) noexcept;
  void idle(Instant now) noexcept;
  void serve_rings() noexcept;

  Hub& hub() const noexcept;
  PollOf of_ = PollOf::kNobody;
  bool is_deadline_moved_ = false;
  unsigned frames_unserved_ = 0;  ///< received since rings were last reaped and refilled
  unsigned idle_turns_ = 0;
  uint64_t tables_seen_;  ///< generation when stalled flows were last retried
};

}  // namespace vireo
