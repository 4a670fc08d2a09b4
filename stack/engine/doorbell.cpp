// Where a doorbell is a system call, it costs about as much as the frame that it is rung for. A
// program that one wait has told of several events mostly answers one after the other and waits
// again: the first answer rings, those behind it leave together. Whatever rings takes them along,
// the next wait does, and any call once there are many, or their time is over.
// Only who has long gone from one answer to the next without delay has them wait: who falls silent
// amid them has the helper ring, some milliseconds later (helper.cpp).
#include <algorithm>
#include <utility>

#include "stack/engine/engine.h"

namespace vireo {
namespace {

/// How long frames wait at most, in doorbells.
constexpr int64_t kHeldDoorbells = 8;
/// What comes so long after the answer before has come without delay.
constexpr Duration kAtOnce = Duration::us(20);
/// Answers that something followed without delay, before one waits; as many are counted at most,
/// and one that nothing followed takes three quarters of them.
constexpr uint8_t kTrusted = 64;
constexpr uint8_t kMostTrust = 255;

}  // namespace

/// Whether what a call of the program's sends on `f` rings, by a port whose doorbells are dear: so
/// many frames.
Doorbell Engine::bell_of_call(const TcpFlow& f, SendBy by, unsigned frames, Instant now) noexcept {
  const Doorbell bell = bell_of_answer(frames, now);
  const bool may_wait =
      by == SendBy::kWrite && !answers_.is_one && may_hold_in_haste(f, frames, now);
  return may_wait ? Doorbell::kLater : bell;
}

/// `frames` of it have left since the call's `now`.
void Engine::note_call(TcpFlow& f, SendBy by, Doorbell bell, unsigned frames,
                       Instant now) noexcept {
  if (bell == Doorbell::kLater && !answers_.is_one) return hold_in_haste(frames, now);
  note_answer(bell, frames, now);
  if (by == SendBy::kWrite && answers_.open <= 1) note_haste(f, now);
}

/// Something follows the last answer.
void Engine::follow_answer(Instant now) noexcept {
  if (now - answers_.last > kAtOnce)
    answers_.trust /= 4;
  else if (answers_.trust < kMostTrust)
    ++answers_.trust;
}

/// What may still be sent in answer to the last wait. Who sleeps has the helper sleep, too:
/// nothing.
inline uint32_t Engine::answers_left() const noexcept {
  return sleepers_.load(std::memory_order_relaxed) == 0
             ? answers_left_.load(std::memory_order_relaxed)
             : 0;
}

/// bell_of_call() of what answers the last wait.
Doorbell Engine::bell_of_answer(unsigned frames, Instant now) noexcept {
  const uint32_t left = answers_left();
  answers_.is_one = left != 0;
  if (!answers_.is_one) return Doorbell::kNow;
  // Not by an exchange: at worst a few too many or too few of another thread's count.
  answers_left_.store(left - 1, std::memory_order_relaxed);
  if (answers_.open == 0) return Doorbell::kNow;
  follow_answer(now);
  return may_hold(frames, now) ? Doorbell::kLater : Doorbell::kNow;
}

/// Whether so many frames that leave behind the first answer may wait.
bool Engine::may_hold(unsigned frames, Instant now) noexcept {
  if (answers_.trust < kTrusted) return false;
  if (answers_.open == 1)
    answers_.until = now + Duration::ns(kHeldDoorbells * answers_.doorbell.ns());
  return answers_.open + frames <= 1 + kMostUnrung && now < answers_.until;
}

/// note_call() of it.
void Engine::note_answer(Doorbell bell, unsigned frames, Instant now) noexcept {
  if (bell == Doorbell::kLater) {
    answers_.last = now;
    answers_.open += frames;
    stats_.shared_doorbells.add(frames);
    return;
  }
  if (!answers_.is_one) return;
  answers_.last = config_.clock();
  answers_.doorbell = std::min(answers_.last - now, kLongestDoorbell);
  // Of several queues another's may still wait.
  if (answers_.open == 0 || only_.queue != nullptr) answers_.open = 1;
}

/// A turn has sent what it had to say. That of a call amid the answers leaves with them; the helper
/// looks after it as long as there are flows.
void Engine::ring_turn(Instant now) noexcept {
  if (is_amid_answers() && answers_left() != 0 &&
      flow_count_.load(std::memory_order_relaxed) != 0 && now - answers_.last <= kAtOnce &&
      may_hold(unrung_, now))
    note_answer(Doorbell::kLater, std::exchange(unrung_, 0), now);
  else
    ring_left();
}

/// A turn begins: with it ends the answering, unless it is a call's amid that.
void Engine::ring_due(Instant now) noexcept {
  if (unrung_ == 0 && poll_of_ == PollOf::kCall && (answers_.open <= 1 || now < answers_.until))
    return;
  if (answers_.open != 0) follow_answer(now);
  ring_left();
  answers_.open = 0;
}

}  // namespace vireo
