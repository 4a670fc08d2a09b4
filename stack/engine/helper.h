// The one background thread: it follows the kernel's network state, and polls each engine when the
// program does not, so that ACKs, timers and retransmissions never depend on the program's calls.
//
// It only tries an engine's lock: if that fails, the holder does the work. While the program polls,
// or sleeps in our calls and wakes again soon, the thread looks once in helper_grace, and less
// often the longer that goes on: each look takes the processor from a program that may have only
// one. It sleeps until an event while threads of the program sleep in our calls for longer (they
// serve the engine when they wake), or while nothing is open. Data held by an automatic cork
// (back_to_back.cpp) it watches more often. Owner: process. Thread: start() and the destructor by
// the owner; the rest is its own thread, all signals but faults blocked.
#pragma once

#include <poll.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/sleep.h"
#include "core/stats_layout.h"
#include "stack/engine/engine.h"

namespace vireo {

class Helper {
 public:
  /// A further task: `ready` is called when `fd` is readable, `tend` at each turn of the thread, at
  /// least when the time is over that it returned last. No lock is held.
  struct Errand {
    int fd = -1;
    void (*ready)(void* self) = nullptr;
    Duration (*tend)(void* self, Instant now) = nullptr;
    void* self = nullptr;
  };
  static constexpr size_t kErrands = 5;
  struct Options {
    Duration grace = Duration::ms(1);
    std::span<const int> cpus;  ///< where it may run; empty: anywhere
    std::array<Errand, kErrands> errands{};
  };
  /// Errors: EAGAIN no thread can be made, EMFILE.
  static Result<std::unique_ptr<Helper>> start(Engine& engine, net::Mirror& mirror,
                                               const Options& options);
  ~Helper();  ///< stops and joins
  /// Serves one more engine, until the helper ends. Before that engine has flows; one caller at a
  /// time.
  void serve_too(Engine& engine) noexcept;
  /// What it may sleep on has changed: a first flow, an earlier deadline. Any thread.
  void wake() noexcept { bell_.signal(); }
  /// The descriptor of the bell, which close(2) must spare.
  int fd() const { return bell_.fd(); }
  /// In the child of a fork, where the thread does not exist.
  void abandon() noexcept { is_running_ = false; }

 private:
  /// An engine, and the thread's own state for it.
  struct Served {
    Engine* engine = nullptr;       ///< constant once counted in count_
    Instant looked{};               ///< last look after the ports
    Instant corked{};               ///< when data of the program was last seen to be held back
    Instant corks_since{};          ///< begin of a sequence of such times
    Instant polled_since{};         ///< last look that did not find the program polling
    bool watches_corks = false;     ///< until such a sequence ends
    uint64_t shared_doorbells = 0;  ///< the engine's, at the last look
    uint64_t sent = 0;              ///< the engine's frames, at the last look for held data
    bool is_polled = false;         ///< the program polls: nothing needs to ring the bell
    bool watch_devices = false;     ///< while the thread sleeps
    std::vector<int> device_fds;    ///< copied under the engine's lock
  };

  Helper(Engine& engine, net::Mirror& mirror, const Options& options, EventFd bell);
  void run() noexcept;
  std::span<Served> served() noexcept {
    return {served_.data(), count_.load(std::memory_order_acquire)};
  }
  static void heed_tables(Engine& e) noexcept;
  static void ask_kernel(Engine& e) noexcept;
  /// Serves the engine if nobody else does. Sets `is_polled` and `watch_devices`. @return how long
  /// to sleep.
  Duration serve(Served& s, Instant now) noexcept;
  /// Makes data held by an automatic cork leave in time. @return when to look again.
  Duration watch_cork(Served& s, Instant now) noexcept;
  Duration run_errands(Instant now) noexcept;
  void sleep(Instant now, Duration d) noexcept;

  std::array<Served, kStatsEngines> served_;
  std::atomic<unsigned> count_{0};
  net::Mirror& mirror_;
  Duration grace_;
  std::array<Errand, kErrands> errands_;
  EventFd bell_;
  std::atomic<bool> stop_{false};
  Instant mirrored_{};         ///< last time that the mirror was processed
  bool rang_ = true;           ///< the last sleep ended by a descriptor
  bool is_mirror_due_ = true;  ///< its descriptor was readable
  std::array<bool, kErrands> is_errand_due_{};
  bool is_running_ = false;
  pthread_t thread_{};
  std::vector<pollfd> poll_fds_;
};

}  // namespace vireo
