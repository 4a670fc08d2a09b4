// When what is sent rings the device's doorbell. Where that is a system call, it costs about as
// much as the frame that it is rung for, so frames may share one:
//
//   answers          a wait has told the program of several events; what it sends in answer to the
//                    first rings, what follows leaves together (doorbell_policy.cpp)
//   back to back     writes that come as fast as the doorbell lets them share one; small ones share
//                    a segment, as Linux's net.ipv4.tcp_autocorking has it (back_to_back.cpp)
//   a turn's         what one turn sends for several connections leaves with one doorbell
//
// Owner: Hub. Guard: the engine's lock, but for what says any thread.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>

#include "core/clock.h"
#include "dev/device.h"
#include "stack/engine/part.h"

namespace vireo {

struct Hub;
struct TcpFlow;

/// What has a connection send.
enum class SendBy : uint8_t {
  kTurn,   ///< none of the program's calls
  kCall,   ///< one of them
  kWrite,  ///< one that writes, and what it wrote waits for no more of it
};

class DoorbellPolicy : Part {
 public:
  // ---- what a call of the program's sends, by a port whose doorbells are dear
  /// Whether `frames` that it sends on `f` ring.
  Doorbell bell_of_call(const TcpFlow& f, SendBy by, unsigned frames, Instant now) noexcept;
  /// `frames` have left since the call's `now`.
  void note_call(TcpFlow& f, SendBy by, Doorbell bell, unsigned frames, Instant now) noexcept;
  /// The same of what nothing else of its connection is in flight with.
  Doorbell bell_of_answer(unsigned frames, Instant now) noexcept;
  void note_answer(Doorbell bell, unsigned frames, Instant now) noexcept;
  /// A wait has told the program of so many events, which it answers now, each by one or two
  /// sends; 0: a wait begins. Any thread.
  void tell(unsigned events) noexcept {
    answers_left_.store(events > 1 ? 2 * events : 0, std::memory_order_relaxed);
  }
  /// A call that sends on `f` waited, for room or while the engine was at work: that was no pause
  /// of the program's.
  void waited(const TcpFlow& f) noexcept;
  /// `f` is the one whose writes followed each other last.
  bool is_back_to_back(const TcpFlow& f) const noexcept { return back_to_back_.flow == &f; }

  // ---- what a turn sends
  /// Whether a turn that polls for a call may leave what it sends to the program's next answer.
  bool is_amid_answers() const noexcept;
  /// Of a frame that nothing of its connection follows.
  Doorbell bell_of_turn() const noexcept { return bell_of_turn_; }
  /// What is sent from here on leaves with one doorbell ...
  void begin_batch() noexcept { bell_of_turn_ = Doorbell::kLater; }
  /// ... which is rung here.
  void end_batch(Instant now) noexcept;

  // ---- frames in the ring that no doorbell was rung for
  bool has_unrung() const noexcept { return unrung_ != 0; }
  void leave_unrung(unsigned frames) noexcept { unrung_ += frames; }
  /// As many of one turn, whosever, leave with one doorbell.
  void ring_if_many() noexcept {
    if (unrung_ >= kMaxTogether) ring();
  }
  /// Whole segments of a stream of small writes have left, whose rest Nagle's algorithm holds.
  void ring_unless_held(const TcpFlow& f, unsigned frames) noexcept;
  /// Rings for whatever has not been rung for.
  void ring() noexcept;
  /// A turn begins: with it ends the answering, unless it is a call's amid that.
  void ring_if_due(Instant now) noexcept {
    if ((unrung_ | answers_.open) != 0) [[unlikely]]
      ring_due(now);
  }
  /// Nobody polls from here on: the program sleeps.
  void ring_before_sleep() noexcept {
    if ((unrung_ | answers_.open) != 0) ring();
  }
  /// Answers wait for a doorbell.
  bool has_open_answers() const noexcept { return answers_.open > 1; }

  // ---- automatic corking: small writes that wait for company
  TcpFlow* corked() const noexcept { return corked_; }
  /// `bytes` that might leave at once should wait.
  bool may_cork(const TcpFlow& f, size_t bytes, Instant now) const noexcept;
  /// They wait. @return false: there is no room for them.
  bool cork(TcpFlow& f, const iovec& data, Instant now) noexcept;
  /// A further write of the one that waits. @return false: its time is over, a segment is full, or
  /// this is no small one.
  bool join_corked(TcpFlow& f, const iovec& data, Instant now) noexcept;
  /// `f` sends `bytes`, which do not just join what waits. That goes on waiting if a segment became
  /// full, and ends else: another connection's leaves here, its own with them. @return it ends.
  bool pass_cork(TcpFlow& f, size_t bytes, bool more, Instant now) noexcept;
  /// What waits leaves with the turn at hand.
  void uncork() noexcept;
  /// What was sent and waits for company or for a doorbell leaves: nobody will look for a while.
  void release_held(Instant now) noexcept;
  /// `f` is closed by its program: it waits for nothing.
  void end_cork_of(TcpFlow& f) noexcept {
    if (corked_ == &f) forget_cork();
  }
  /// `f` ends.
  void forget(TcpFlow& f) noexcept {
    end_cork_of(f);
    if (back_to_back_.flow == &f) back_to_back_.flow = nullptr;
  }

  // ---- the helper's look after what waits. Any thread
  /// What the program writes waits for more of it, or for a doorbell, until then at most; never:
  /// nothing does.
  Instant corked_until() const noexcept {
    return Instant::from_ns(corked_until_.load(std::memory_order_seq_cst));
  }
  /// The helper is to look after that: its bell rang.
  bool is_cork_watched() const noexcept {
    return is_cork_watched_.load(std::memory_order_relaxed);  // ordered by the bell
  }
  /// It looks no more, unless something waits. @return false: it does.
  bool end_cork_watch() noexcept;

 private:
  /// Frames of the program's calls that wait for the doorbell of another. More make each cheaper,
  /// but a look at what came, once in 32 KiB, rings soon after.
  static constexpr unsigned kMaxUnrung = 20;
  /// Frames of one turn, whosever, that leave with one doorbell.
  static constexpr unsigned kMaxTogether = 32;
  /// No doorbell counts as longer: another process may have had the processor.
  static constexpr Duration kMaxDoorbell = Duration::us(4);

  // doorbell_policy.cpp
  void follow_answer(Instant now) noexcept;
  uint32_t answers_left() const noexcept;
  bool may_hold_answer(unsigned frames, Instant now) noexcept;
  void ring_turn(Instant now) noexcept;
  void ring_due(Instant now) noexcept;

  // back_to_back.cpp
  bool follows_at_once(const TcpFlow& f, Instant now) const noexcept;
  void note_back_to_back(TcpFlow& f, Instant now) noexcept;
  bool may_hold_back_to_back(const TcpFlow& f, unsigned frames, Instant now) const noexcept;
  void hold_back_to_back(unsigned frames, Instant now) noexcept;
  void forget_cork() noexcept;
  void watch_held(Instant now) noexcept;
  void end_watch() noexcept;

  Hub& hub() const noexcept;
  unsigned unrung_ = 0;                     ///< frames that wait for ring()
  Doorbell bell_of_turn_ = Doorbell::kNow;  ///< of a segment that nothing of its connection follows
  /// What the program answers to the events that it was told of.
  struct {
    bool is_one = false;  ///< what is being sent
    unsigned open = 0;    ///< 1 and the frames that wait for a doorbell, from the first answer on
    uint8_t trust = 0;    ///< answers in a row that something followed at once
    Instant until{};      ///< so long they wait
    Instant last{};       ///< when the last one had left
    Duration doorbell{};  ///< how long the last one that rang took
  } answers_;
  TcpFlow* corked_ = nullptr;  ///< its small writes wait for company...
  Instant uncork_at_{};        ///< ... until then
  /// The last write that left at once behind others.
  struct {
    const TcpFlow* flow = nullptr;
    unsigned sends = 0;   ///< in a row that came at once, less what interruptions cost
    Duration doorbell{};  ///< how long the last one that rang for itself alone took, with its send
    Instant done{};       ///< when that was over, or since when it waits for another's
    Instant ring_at{};    ///< so long those wait that do
  } back_to_back_;
  // Shared with other threads.
  alignas(64) std::atomic<int64_t> corked_until_{Instant::never().ns()};
  std::atomic<uint32_t> answers_left_{0};  ///< to what tell() was told of, at most
  std::atomic<bool> is_cork_watched_{false};
};

}  // namespace vireo
