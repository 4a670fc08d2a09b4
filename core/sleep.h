// Waiting without using a processor: futex words and eventfds.
// Owner: none. Thread: any. All are raw system calls: the libc names may be the interposed ones.
// errno is preserved. Timeouts are durations, not points in time: Instant counts TSC time, which
// drifts from the kernel's clock over hours.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/clock.h"
#include "core/fd.h"
#include "core/result.h"

namespace vireo {

/// For the body of a spin loop: lets the sibling hyperthread run and saves the pipeline flush at
/// the end.
inline void cpu_relax() noexcept { __builtin_ia32_pause(); }

enum class Wake : uint8_t {
  kWoken,  ///< woken, or the word had changed; may be spurious: check again
  kTimeout,
  kInterrupted,  ///< a signal handler ran (EINTR)
};

/// Sleeps while `word` holds `expected`. Duration::max(): without limit; a timeout <= 0 returns at
/// once. The caller reads the word again with acquire: a futex does not order memory. Source:
/// futex(2).
Wake futex_wait(const std::atomic<uint32_t>& word, uint32_t expected,
                Duration timeout = Duration::max()) noexcept;
/// Wakes up to `count` sleepers of `word`. @return number woken.
int futex_wake(const std::atomic<uint32_t>& word, int count) noexcept;

/// A counter in the kernel that makes a descriptor readable: wakes a thread that sleeps in poll or
/// epoll.
class EventFd {
 public:
  /// Non-blocking, close-on-exec. Errors: EMFILE, ENFILE, ENOMEM.
  static Result<EventFd> create() noexcept;
  EventFd() = default;
  int fd() const noexcept { return fd_.get(); }
  /// Makes fd() readable. Any thread, any number of times.
  void signal() noexcept;
  /// Makes fd() unreadable again. @return true if it had been signalled.
  bool drain() noexcept;

 private:
  explicit EventFd(UniqueFd fd) : fd_(static_cast<UniqueFd&&>(fd)) {}
  UniqueFd fd_;
};

}  // namespace vireo
