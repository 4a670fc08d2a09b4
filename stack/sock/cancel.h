// pthread_cancel(3) and the waits of our calls. A call that waits is a cancellation point, as in
// libc (pthreads(7)). But libc would unwind our frames, which hold locks, a place to spin, a
// reference to a File. So cancellation only ends a wait early, as a signal does; the call gives all
// back on its way out, and the thread ends at the boundary, where nothing is held. libc's own
// cancellation points are used in run_cancelable() alone.
// Owner: none. Thread: each its own.
#pragma once

#include <type_traits>

namespace vireo {

/// This thread was cancelled in a wait: the call returns whatever it likes, then the thread ends.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit bool t_cancelled = false;

/// Runs `wait`, which may block in a cancellation point of libc. No lock may be held.
/// @return its result; -1 and EINTR if the thread was cancelled, which every SignalMark tells too.
long run_cancelable(long (*wait)(void*), void* argument) noexcept;

template <class F>
auto cancelable(F&& wait) noexcept {
  using Return = decltype(wait());
  return static_cast<Return>(run_cancelable(
      [](void* f) { return static_cast<long>((*static_cast<std::remove_reference_t<F>*>(f))()); },
      &wait));
}

/// A wait that spins looks once in so many rounds whether it was cancelled. As above.
inline constexpr int kPollsPerCancelLook = 1024;
void look_for_cancel() noexcept;

[[noreturn, gnu::cold]] void end_cancelled() noexcept;
/// Ends the thread if it was cancelled. Nothing of ours may be held.
inline void finish_cancel() noexcept {
  if (t_cancelled) [[unlikely]]
    end_cancelled();
}

}  // namespace vireo
