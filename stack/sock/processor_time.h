// Whether the process gets a processor when it wants one. Where it waits for that longer than it
// runs, polling and a helper's thread of its own only take from others what it needs itself.
// Source: /proc/self/schedstat (Linux Documentation/scheduler/sched-stats.rst), of the program's
// first thread; without it, processors are never short.
//
// Owner: Promotion. Thread: any; a lost update is harmless.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "core/clock.h"

namespace vireo {

class ProcessorTime {
 public:
  /// Of one thread, from its beginning.
  struct Reading {
    int64_t run_ns = 0;
    int64_t waited_ns = 0;  ///< ready to run, on no processor
  };

  /// Three system calls, unless the answer is known from a moment ago.
  bool is_short(Instant now) noexcept;
  /// The same by a reading.
  bool judge(const Reading& r, Instant now) noexcept;
  /// In the child of a fork, whose thread is new.
  void forget() noexcept;

  static std::optional<Reading> read() noexcept;

 private:
  std::atomic<int64_t> run_ns_{0};  ///< at the beginning of the time that is judged
  std::atomic<int64_t> waited_ns_{0};
  std::atomic<int64_t> since_ns_{0};
  std::atomic<int64_t> short_until_ns_{0};
};

}  // namespace vireo
