// The one background thread: follows the kernel's network state, and polls each engine when the
// program does not, so that acknowledgments, timers and retransmissions never depend on the program
// calling in.
//
// It only ever tries an engine's lock: failure means that someone is inside and does the work.
// While the program polls, it looks once in helper_grace, and the longer that goes on the more
// seldom: each look takes the processor from a program that has but one. While threads of the
// program sleep in our calls (they serve the engine when they wake), or nothing is open, it sleeps
// until something happens. What an automatic cork holds (back_to_back.cpp) it looks after more
// often. Owner: process. Thread: start() and the destructor by the owner; the rest is its own
// thread, all signals but faults blocked.
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
  /// Something else to look after: `ready` is called when `fd` is readable. No lock is held.
  struct Errand {
    int fd = -1;
    void (*ready)(void* self) = nullptr;
    void* self = nullptr;
  };
  struct Options {
    Duration grace = Duration::ms(1);
    std::span<const int> cpus;  ///< where it may run; empty: anywhere
    Errand errand{};
  };
  /// Errors: EAGAIN no thread can be made, EMFILE.
  static Result<std::unique_ptr<Helper>> start(Engine& engine, net::Mirror& mirror,
                                               const Options& options);
  ~Helper();  ///< stops and joins
  /// Serves one more engine from now on, until it ends. Before it has flows; one caller at a time.
  void serve_too(Engine& engine) noexcept;
  /// Something changed that it may sleep on: a first flow, an earlier deadline. Any thread.
  void wake() noexcept { bell_.signal(); }
  /// The descriptor of the bell: to be spared by close(2).
  int fd() const { return bell_.fd(); }
  /// In the child of a fork: the thread does not exist here, forget it.
  void abandon() noexcept { is_running_ = false; }

 private:
  /// An engine, and what the thread knows of it.
  struct Served {
    Engine* engine = nullptr;       ///< constant once it is counted
    Instant looked{};               ///< last look after the ports
    Instant corked{};               ///< when it was last seen to hold back what the program writes
    Instant corks_since{};          ///< of a row of such times
    Instant polled_since{};         ///< last look that did not find the program polling
    unsigned quiet_rounds = 0;      ///< looks in a row that found sleepers of the program
    bool watches_corks = false;     ///< until such a row is over
    uint64_t shared_doorbells = 0;  ///< of the engine's, at the last look
    uint64_t sent = 0;              ///< frames of the engine's, at the last look after its corks
    bool is_polled = false;         ///< the program polls: nothing needs to ring
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
  /// Serves the engine if nobody else does. @return how long to sleep; sets `is_polled` and
  /// `watch_devices`.
  Duration serve(Served& s, Instant now) noexcept;
  /// Sees to it that what an automatic cork holds leaves in time. @return when to look again.
  Duration watch_cork(Served& s, Instant now) noexcept;
  void sleep(Instant now, Duration d) noexcept;

  std::array<Served, kStatsEngines> served_;
  std::atomic<unsigned> count_{0};
  net::Mirror& mirror_;
  Duration grace_;
  Errand errand_;
  EventFd bell_;
  std::atomic<bool> stop_{false};
  Instant mirrored_{};         ///< when the mirror had its turn last
  bool rang_ = true;           ///< the last sleep ended by a descriptor
  bool is_mirror_due_ = true;  ///< it has something to do
  bool is_errand_due_ = false;
  bool is_running_ = false;
  pthread_t thread_{};
  std::vector<pollfd> poll_fds_;
};

}  // namespace vireo
