// A turn of the engine: one burst from every queue, what is due, what is to be sent, who is to be
// told; in the order of who waits for it. What nobody waits for is left to a turn that finds
// nothing.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;

/// Whose a turn is that returns to the program with what came.
enum class PollOf : uint8_t {
  kNobody,  ///< it does not
  kCall,    ///< recv, accept, connect: the program may be amid what an earlier call told it
  kWait,    ///< epoll_wait, poll, select, or whoever blocks: it is done with that
};

/// Half-open connections, and those in TIME-WAIT, that end with one turn.
inline constexpr unsigned kExpiriesPerTurn = 32;

class Turn : Part {
 public:
  /// Frames after which rings are served although no turn found nothing: where every turn finds
  /// frames, none would, and the device would run out of empty ones.
  static constexpr unsigned kMaxUnserved = 256;

  /// `tables`: generation of the kernel's tables that it begins with.
  explicit Turn(uint64_t tables) : tables_seen_(tables) {}

  /// Of a program that polls. @return true if a frame was handled.
  bool poll(Instant now) noexcept;
  /// The same of a call that returns to the program with what came: a delayed ACK waits some such
  /// turns, for what the program does next, send or close, carries it. It may have many others to
  /// look after before that, until it waits again for all of them.
  bool poll_to_return(Instant now, PollOf of) noexcept {
    of_ = of;
    const bool is_worked = poll(now);
    of_ = PollOf::kNobody;
    return is_worked;
  }
  /// A turn for whomever. @return as poll().
  bool run(Instant now) noexcept;
  /// poll_to_return() whose only queue has given the first `n` frames.
  bool go_on_to_return(Instant now, PollOf of, unsigned n) noexcept;
  /// All else of poll_to_return() whose one frame was taken.
  bool finish_to_return(Instant now, PollOf of) noexcept;
  /// A turn has taken one frame, and counts it. @return true: there is something else to be done,
  /// by finish_to_return(). As a part of the caller, by fast_path/receive_awaited.h.
  bool must_finish(Instant now) noexcept;

  PollOf of() const noexcept { return of_; }
  /// Turns that found nothing, since something was done.
  unsigned idle_turns() const noexcept { return idle_turns_; }
  /// Something was done: what the device has read is reaped in the next turn that finds nothing.
  void end_idling() noexcept { idle_turns_ = 0; }
  /// The deadline that others see may be late.
  void move_deadline() noexcept { is_deadline_moved_ = true; }
  /// Something waits for the next turn: whoever sleeps or helps must know.
  void note_work() noexcept {
    idle_turns_ = 0;
    is_deadline_moved_ = true;
  }
  /// Tells all of the earliest time at which something is due.
  void publish_deadline(Instant now) noexcept;
  /// The kernel's tables have changed: devices hear of it, and who waits for a neighbour tries
  /// again.
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
  uint64_t tables_seen_;  ///< generation of the last look at waiting neighbours
};

}  // namespace vireo
