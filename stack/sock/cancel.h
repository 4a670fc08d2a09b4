// pthread_cancel(3) during Vireo's waits. A call that waits is a cancellation point, as in libc
// (pthreads(7)). But libc would unwind Vireo's frames, which hold locks, a spin place, or a
// reference to a File. So cancellation only ends a wait early, as a signal does; the call releases
// everything on its way out, and the thread ends at the outermost frame, which holds nothing. Only
// run_cancelable() uses libc's own cancellation points.
// Owner: none. Thread: each its own.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace vireo {

/// Why this thread's wait is to stop, or to do something else first.
struct Interrupts {
  bool is_cancelled = false;  ///< the call's result is ignored, and the thread ends
  /// It saw a socket with datagrams that a callback is to see first (inspection.h).
  bool has_unshown = false;

  bool any() const noexcept { return std::bit_cast<uint16_t>(*this) != 0; }
};
[[gnu::tls_model("initial-exec")]] inline thread_local constinit Interrupts t_interrupts;

/// Runs `wait`, which may block in a cancellation point of libc. No lock may be held.
/// @return its result; -1 and EINTR if the thread was cancelled, which sets every SignalMark, too.
long run_cancelable(long (*wait)(void*), void* argument) noexcept;

template <class F>
auto cancelable(F&& wait) noexcept {
  using Return = decltype(wait());
  return static_cast<Return>(run_cancelable(
      [](void* f) { return static_cast<long>((*static_cast<std::remove_reference_t<F>*>(f))()); },
      &wait));
}

/// A spinning wait checks for cancellation once in so many rounds. No lock may be held.
inline constexpr int kPollsPerCancelLook = 1024;
void look_for_cancel() noexcept;

[[noreturn, gnu::cold]] void end_cancelled() noexcept;
/// Ends the thread if it was cancelled. The caller holds no lock, place or reference.
inline void finish_cancel() noexcept {
  if (t_interrupts.is_cancelled) [[unlikely]]
    end_cancelled();
}

}  // namespace vireo
