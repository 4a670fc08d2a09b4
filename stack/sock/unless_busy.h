// dup2(2) and dup3(2) onto a number that Vireo's thread is about to get, for a moment, fail with
// EBUSY: they are tried again. Owner: none. Thread: any.
#pragma once

#include <sched.h>

#include <cerrno>

namespace vireo {

/// @param f the call: a number, or -1 and errno. @return that.
template <class F>
int unless_busy(F&& f) noexcept {
  int r = f();
  for (int tries = 0; r < 0 && errno == EBUSY && tries < 10'000; ++tries) {
    ::sched_yield();
    r = f();
  }
  return r;
}

}  // namespace vireo
