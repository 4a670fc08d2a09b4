// Answers to the events of one wait. A program that was told of several events mostly answers one
// after the other and waits again: the first answer rings, those behind it wait for one doorbell.
// It rings with whatever rings next: the next wait, any call once many frames wait, or any call
// after their time is over. Answers wait only if the program has long followed each answer by the
// next without delay. If it stops between them, the helper rings some milliseconds later
// (helper.cpp).
#include <algorithm>
#include <utility>

#include "stack/engine/hub.h"
#include "stack/tcp/fast_path/nagle.h"

namespace vireo {
namespace {

/// Longest time that frames wait, in doorbells.
constexpr int64_t kHeldDoorbells = 8;
/// An answer within this time of the one before came without delay.
constexpr Duration kAtOnce = Duration::us(20);
/// An answer may wait only after so many that were followed without delay. The count is limited,
/// and an answer that nothing followed takes three quarters of it.
constexpr uint8_t kTrusted = 64;
constexpr uint8_t kMaxTrust = 255;

}  // namespace

/// The doorbell for `frames` that a call sends on `f`, on a port where a doorbell is expensive.
Doorbell DoorbellPolicy::bell_of_call(const TcpFlow& f, SendBy by, unsigned frames,
                                      Instant now) noexcept {
  const Doorbell bell = bell_of_answer(frames, now);
  const bool may_wait =
      by == SendBy::kWrite && !answers_.is_one && may_hold_back_to_back(f, frames, now);
  return may_wait ? Doorbell::kLater : bell;
}

/// `frames` of it have left since the call's `now`.
void DoorbellPolicy::note_call(TcpFlow& f, SendBy by, Doorbell bell, unsigned frames,
                               Instant now) noexcept {
  if (bell == Doorbell::kLater && !answers_.is_one) return hold_back_to_back(frames, now);
  note_answer(bell, frames, now);
  if (by == SendBy::kWrite && answers_.open <= 1) note_back_to_back(f, now);
}

void DoorbellPolicy::waited(const TcpFlow& f) noexcept {
  if (is_back_to_back(f)) back_to_back_.done = hub().config.clock();
}

/// Something follows the last answer.
void DoorbellPolicy::follow_answer(Instant now) noexcept {
  if (now - answers_.last > kAtOnce)
    answers_.trust /= 4;
  else if (answers_.trust < kMaxTrust)
    ++answers_.trust;
}

/// Answers still expected since the last wait. None while a thread sleeps: the helper sleeps too
/// then.
inline uint32_t DoorbellPolicy::answers_left() const noexcept {
  return hub().wakeups.sleepers() == 0 ? answers_left_.load(std::memory_order_relaxed) : 0;
}

/// bell_of_call() for an answer.
Doorbell DoorbellPolicy::bell_of_answer(unsigned frames, Instant now) noexcept {
  const uint32_t left = answers_left();
  answers_.is_one = left != 0;
  if (!answers_.is_one) return Doorbell::kNow;
  // A load and a store: at worst the count is off by those of another thread.
  answers_left_.store(left - 1, std::memory_order_relaxed);
  if (answers_.open == 0) return Doorbell::kNow;
  follow_answer(now);
  return may_hold_answer(frames, now) ? Doorbell::kLater : Doorbell::kNow;
}

/// Whether `frames` that leave behind the first answer may wait.
bool DoorbellPolicy::may_hold_answer(unsigned frames, Instant now) noexcept {
  if (answers_.trust < kTrusted) return false;
  if (answers_.open == 1)
    answers_.until = now + Duration::ns(kHeldDoorbells * answers_.doorbell.ns());
  return answers_.open + frames <= 1 + kMaxUnrung && now < answers_.until;
}

/// note_call() for an answer.
void DoorbellPolicy::note_answer(Doorbell bell, unsigned frames, Instant now) noexcept {
  if (bell == Doorbell::kLater) {
    answers_.last = now;
    answers_.open += frames;
    hub().stats.shared_doorbells.add(frames);
    return;
  }
  if (!answers_.is_one) return;
  answers_.last = hub().config.clock();
  answers_.doorbell = std::min(answers_.last - now, kMaxDoorbell);
  // With several queues, frames in another one may still wait.
  if (answers_.open == 0 || hub().ports.only().queue != nullptr) answers_.open = 1;
}

/// With several queues, the doorbell of another may be cheap.
bool DoorbellPolicy::is_amid_answers() const noexcept {
  return hub().turn.of() == PollOf::kCall && answers_.open != 0 &&
         hub().ports.only().queue != nullptr;
}

void DoorbellPolicy::end_batch(Instant now) noexcept {
  bell_of_turn_ = Doorbell::kNow;
  if (unrung_ != 0) [[unlikely]]
    ring_turn(now);
}

/// A turn has sent its frames. In a call made between answers they wait for the doorbell of these;
/// the helper watches them as long as there are flows.
void DoorbellPolicy::ring_turn(Instant now) noexcept {
  if (is_amid_answers() && answers_left() != 0 && hub().wakeups.flows() != 0 &&
      now - answers_.last <= kAtOnce && may_hold_answer(unrung_, now))
    note_answer(Doorbell::kLater, std::exchange(unrung_, 0), now);
  else
    ring();
}

/// A turn begins. That ends the answers, unless the turn belongs to a call made between them.
void DoorbellPolicy::ring_due(Instant now) noexcept {
  if (unrung_ == 0 && hub().turn.of() == PollOf::kCall &&
      (answers_.open <= 1 || now < answers_.until))
    return;
  if (answers_.open != 0) follow_answer(now);
  ring();
  answers_.open = 0;
}

/// Rings for all frames sent with Doorbell::kLater.
[[gnu::noinline]] void DoorbellPolicy::ring() noexcept {
  unrung_ = 0;
  if (answers_.open != 0) answers_.open = 1;
  if (corked_ == nullptr) end_watch();
  hub().ports.flush();
}

/// Full segments of a stream of small writes; Nagle's algorithm holds the rest. The peer has no
/// complete message before the ACK of the data in flight arrives, so these need not ring each: the
/// next poll rings, or the kMaxUnrung-th of them.
void DoorbellPolicy::ring_unless_held(const TcpFlow& f, unsigned frames) noexcept {
  unrung_ += frames;
  if (unrung_ < kMaxUnrung && tcp::is_held_back(f.tcb)) return;
  ring();
}

}  // namespace vireo
