// Notes that a ring of io_uring(7) was made: Vireo does not see the calls made through it, so the
// program's sockets become the kernel's. Owner: none (a function). Thread: any.
#pragma once

#include <cerrno>

#include "stack/preload/process_stack.h"
#include "stack/preload/signals.h"
#include "stack/sock/uring.h"

namespace vireo::preload {

/// @return `made`, which is negative if no ring was made. Keeps errno.
template <class T>
T note_ring(T made) noexcept {
  if (made < 0) return made;
  const int saved = errno;
  if (Stack* s = get_stack(); s != nullptr) {
    Inside inside;
    sock::ring_was_made(*s);
  }
  errno = saved;
  return made;
}

}  // namespace vireo::preload
