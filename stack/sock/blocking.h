// How a call waits: it polls for as long as VMA_RX_POLL says, then sleeps until the device, the
// kernel's socket, another thread's poll or a signal wakes it.
// Owner: the calling thread's stack. Thread: its own.
#pragma once

#include <poll.h>

#include <cstdint>

#include "core/clock.h"
#include "core/result.h"
#include "stack/engine/engine.h"
#include "stack/sock/file.h"
#include "stack/sock/stack.h"

namespace vireo {

/// Holds an engine's lock for a scope.
class VIREO_SCOPED_CAPABILITY EngineGuard {
 public:
  explicit EngineGuard(Engine& e) noexcept VIREO_ACQUIRE(e.lock()) : engine_(e) { e.acquire(); }
  /// Adopts a lock that is held already.
  EngineGuard(Engine& e, std::adopt_lock_t) noexcept VIREO_REQUIRES(e.lock()) : engine_(e) {}
  EngineGuard(const EngineGuard&) = delete;
  EngineGuard& operator=(const EngineGuard&) = delete;
  ~EngineGuard() VIREO_RELEASE() {
    if (held_) engine_.unlock();
  }
  void unlock() noexcept VIREO_RELEASE() {
    engine_.unlock();
    held_ = false;
  }
  void lock() noexcept VIREO_ACQUIRE() {
    engine_.acquire();
    held_ = true;
  }

 private:
  Engine& engine_;
  bool held_ = true;
};

/// Takes an engine's lock whose holder has not polled for so long that it must have lost its
/// processor: waits for it in the kernel. @return false: the holder polls.
bool take_from_absent(Engine& e, Instant now) noexcept VIREO_TRY_ACQUIRE(true, e.lock());
/// Takes an engine's lock to poll at `now`, unless its holder polls. @return taken
inline bool take_to_poll(Engine& e, Instant now) noexcept VIREO_TRY_ACQUIRE(true, e.lock()) {
  return e.try_acquire() || take_from_absent(e, now);
}

/// Releases a reference; the last one closes the File. No lock held.
void release_pin(File& f) noexcept;

/// A reference to a File during a sleep. Declare it before the EngineGuard: releasing the last
/// reference closes the socket and takes locks.
class FilePin {
 public:
  FilePin() = default;
  FilePin(const FilePin&) = delete;
  FilePin& operator=(const FilePin&) = delete;
  ~FilePin() {
    if (file_ != nullptr) [[unlikely]]
      release();
  }
  /// Under a lock that keeps `f` alive. May be called again.
  void pin(File& f) noexcept {
    if (file_ != nullptr) return;
    f.refs.fetch_add(1, std::memory_order_relaxed);
    file_ = &f;
  }
  void release() noexcept;

 private:
  File* file_ = nullptr;
};

/// When a call stops waiting.
class Deadline {
 public:
  /// 0 = never (as in SO_RCVTIMEO).
  static Deadline after_ns(int64_t ns) {
    return Deadline(ns == 0 ? Instant::never() : Clock::now() + Duration::ns(ns));
  }
  static Deadline never() { return Deadline(Instant::never()); }
  bool passed(Instant now) const { return now >= at_; }
  Instant at() const { return at_; }

 private:
  explicit Deadline(Instant at) : at_(at) {}
  Instant at_;
};

enum class Woken : uint8_t {
  kReady,   ///< the predicate holds
  kKernel,  ///< the kernel's socket has one of the requested events
};

/// The buffer of a receive call, on a connection or a connected socket, that found nothing to read.
struct DirectRead {
  Flow& flow;  ///< of the handle's File; if the File's flow has changed, nothing is read
  iovec to;    ///< not null
  size_t taken = 0;
};

/// What a call waits for besides its predicate.
struct WaitFor {
  Handle handle;
  Deadline deadline;
  short kernel_events = 0;       ///< POLLIN to check the kernel's socket too; 0 = never check it
  int kernel_ratio = 0;          ///< check it once in so many polls; 0 = only before sleeping
  DirectRead* direct = nullptr;  ///< input may be read at once to this buffer, which ends the wait
};

/// Polls and sleeps until `ready(argument)` (called with the lock) holds. The lock is held on entry
/// and, whatever the outcome, on return. The caller must have pinned the File. After a direct read
/// of TCP, part of the receive work is deferred: call Engine::finish_deferred().
/// Errors: EAGAIN at the deadline, EINTR.
Result<Woken> wait_until(Engine& e, const WaitFor& what, const SignalMark& signals,
                         bool (*ready)(void*), void* argument) noexcept VIREO_REQUIRES(e.lock());

template <class Pred>
Result<Woken> wait_until(Engine& e, const WaitFor& what, const SignalMark& signals,
                         Pred&& pred) noexcept VIREO_REQUIRES(e.lock()) {
  return wait_until(
      e, what, signals, [](void* p) { return (*static_cast<std::remove_reference_t<Pred>*>(p))(); },
      &pred);
}

}  // namespace vireo
