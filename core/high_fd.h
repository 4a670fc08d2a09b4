// Gives Vireo's long-lived descriptors high numbers. A program may count its descriptors, expect
// the lowest free number, or close and reuse a range of small ones: ours are out of its way. Owner:
// none. Thread: any.
#pragma once

#include <utility>

#include "core/fd.h"

namespace vireo {

/// Moves `fd` to a high number, close-on-exec. @return the new number; `fd` itself if it is
/// negative or there is no room above (RLIMIT_NOFILE).
int to_high_number(int fd) noexcept;
/// Where they begin.
int high_number() noexcept;

inline UniqueFd to_high_number(UniqueFd fd) noexcept {
  return UniqueFd(to_high_number(fd.release()));
}

}  // namespace vireo
