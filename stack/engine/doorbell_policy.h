// When sent frames ring the device's doorbell. Where the doorbell is a system call, it costs about
// as much as a frame, so several frames may share one:
//
//   answers          a wait reported several events to the program; its first send in answer rings,
//                    the sends behind it share a doorbell (doorbell_policy.cpp)
//   back to back     writes that follow each other as fast as the doorbell allows share one; small
//                    ones share a segment, as in Linux's net.ipv4.tcp_autocorking
//                    (back_to_back.cpp)
//   turns            what one turn sends for several connections shares one doorbell
//
// Owner: Hub. Guard: the engine's lock, except where "any thread" is stated.
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

/// What makes a connection send.
enum class SendBy : uint8_t {
  kTurn,   ///< not a call of the program
  kCall,   ///< a call of the program
  kWrite,  ///< a write whose data does not wait for more data
};

class DoorbellPolicy : Part {
 public:
  // ---- frames sent by a call, on a port where a doorbell is expensive
  /// The doorbell for `frames` that a call sends on `f`.
  Doorbell bell_of_call(const TcpFlow& f, SendBy by, unsigned frames, Instant now) noexcept;
  /// `frames` have left since the call's `now`.
  void note_call(TcpFlow& f, SendBy by, Doorbell bell, unsigned frames, Instant now) noexcept;
  /// The same for the only segment that its connection has in flight.
  Doorbell bell_of_answer(unsigned frames, Instant now) noexcept;
  void note_answer(Doorbell bell, unsigned frames, Instant now) noexcept;
  /// A wait returned this many events to the program, which will answer each with one or two sends;
  /// 0: a wait begins. Any thread.
  void tell(unsigned events) noexcept {
    answers_left_.store(events > 1 ? 2 * events : 0, std::memory_order_relaxed);
  }
  /// A call that sends on `f` waited, for buffer space or for the engine: the program did not
  /// pause.
  void waited(const TcpFlow& f) noexcept;
  /// `f` is the flow of the last back-to-back write.
  bool is_back_to_back(const TcpFlow& f) const noexcept { return back_to_back_.flow == &f; }

  // ---- frames sent by a turn
  /// Whether a turn that polls for a call may leave its frames to the doorbell of the next answer.
  bool is_amid_answers() const noexcept;
  /// The doorbell for the last segment of a connection.
  Doorbell bell_of_turn() const noexcept { return bell_of_turn_; }
  /// Frames sent from here on share one doorbell ...
  void begin_batch() noexcept { bell_of_turn_ = Doorbell::kLater; }
  /// ... which rings here.
  void end_batch(Instant now) noexcept;

  // ---- frames in the ring for which no doorbell has rung
  bool has_unrung() const noexcept { return unrung_ != 0; }
  void leave_unrung(unsigned frames) noexcept { unrung_ += frames; }
  /// Frames of one turn, of all connections, share a doorbell up to this number.
  void ring_if_many() noexcept {
    if (unrung_ >= kMaxTogether) ring();
  }
  /// Full segments of a stream of small writes have left; Nagle's algorithm holds the rest.
  void ring_unless_held(const TcpFlow& f, unsigned frames) noexcept;
  /// Rings for all frames that have not been rung for.
  void ring() noexcept;
  /// A turn begins. That ends the answers, unless the turn belongs to a call made between them.
  void ring_if_due(Instant now) noexcept {
    if ((unrung_ | answers_.open) != 0) [[unlikely]]
      ring_due(now);
  }
  /// The program sleeps: nobody polls from here on.
  void ring_before_sleep() noexcept {
    if ((unrung_ | answers_.open) != 0) ring();
  }
  /// Answers wait for a doorbell.
  bool has_open_answers() const noexcept { return answers_.open > 1; }

  // ---- automatic corking: small writes that wait for more data
  TcpFlow* corked() const noexcept { return corked_; }
  /// Whether `bytes` that could leave at once should wait.
  bool may_cork(const TcpFlow& f, size_t bytes, Instant now) const noexcept;
  /// Makes them wait. @return false: no buffer space.
  bool cork(TcpFlow& f, const iovec& data, Instant now) noexcept;
  /// A further write on the corked connection. @return false: its time is over, a segment is full,
  /// or the write is not small.
  bool join_corked(TcpFlow& f, const iovec& data, Instant now) noexcept;
  /// `f` sends `bytes` that join_corked() did not take. Corking goes on if a segment became full,
  /// else it ends: data of another connection is sent here, data of `f` with this send. @return it
  /// ends.
  bool pass_cork(TcpFlow& f, size_t bytes, bool more, Instant now) noexcept;
  /// The corked data leaves with the current turn.
  void uncork() noexcept;
  /// Sends all that waits for more data or for a doorbell: nobody will poll for a while.
  void release_held(Instant now) noexcept;
  /// The program closed `f`: nothing of it waits any more.
  void end_cork_of(TcpFlow& f) noexcept {
    if (corked_ == &f) forget_cork();
  }
  /// The life of `f` ends.
  void forget(TcpFlow& f) noexcept {
    end_cork_of(f);
    if (back_to_back_.flow == &f) back_to_back_.flow = nullptr;
  }

  // ---- how the helper watches waiting data. Any thread
  /// Until when data of the program may wait for more data or for a doorbell; never: nothing waits.
  Instant corked_until() const noexcept {
    return Instant::from_ns(corked_until_.load(std::memory_order_seq_cst));
  }
  /// The helper has been told by its bell to watch corked_until().
  bool is_cork_watched() const noexcept {
    return is_cork_watched_.load(std::memory_order_relaxed);  // ordered by the bell
  }
  /// The helper stops watching, unless something waits. @return false: something does.
  bool end_cork_watch() noexcept;

 private:
  /// Frames of the program's calls that may wait for one doorbell. A larger number would save more,
  /// but the program looks for received frames once in 32 KiB sent, and that rings anyway.
  static constexpr unsigned kMaxUnrung = 20;
  /// Frames of one turn that may share one doorbell.
  static constexpr unsigned kMaxTogether = 32;
  /// Upper bound of a measured doorbell: a longer one was interrupted by another process.
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
  Doorbell bell_of_turn_ = Doorbell::kNow;  ///< of a connection's last segment
  /// The program's sends in answer to the events it was told of.
  struct {
    bool is_one = false;  ///< the current send is an answer
    unsigned open = 0;    ///< from the first answer on: 1 + frames that wait for a doorbell
    uint8_t trust = 0;    ///< answers that were followed by another one at once
    Instant until{};      ///< the waiting frames wait until then
    Instant last{};       ///< when the last answer had left
    Duration doorbell{};  ///< duration of the last answer that rang
  } answers_;
  TcpFlow* corked_ = nullptr;  ///< its small writes wait for more data...
  Instant uncork_at_{};        ///< ... until then
  /// The last write of a back-to-back sequence.
  struct {
    const TcpFlow* flow = nullptr;
    unsigned sends = 0;   ///< consecutive sends that came at once, less a penalty for interruptions
    Duration doorbell{};  ///< duration of the last send that rang for its own frames only
    Instant done{};  ///< when that send ended, or when a send began to wait for another's doorbell
    Instant ring_at{};  ///< until when frames may wait for a doorbell
  } back_to_back_;
  // Shared with other threads.
  alignas(64) std::atomic<int64_t> corked_until_{Instant::never().ns()};
  std::atomic<uint32_t> answers_left_{0};  ///< to the events given to tell(), at most
  std::atomic<bool> is_cork_watched_{false};
};

}  // namespace vireo
