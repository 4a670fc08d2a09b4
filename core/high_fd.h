// Gives Vireo's long-lived descriptors high numbers, so that they do not interfere with a program
// that counts its descriptors, expects the lowest free number, or closes and reuses a range of low
// ones. Owner: none. Thread: any.
#pragma once

#include <utility>

#include "core/fd.h"

namespace vireo {

/// Moves `fd` to a high number, close-on-exec. @return the new number; `fd` itself if it is
/// negative or there is no room above (RLIMIT_NOFILE).
int to_high_number(int fd) noexcept;
/// The lowest of these numbers.
int high_number() noexcept;

inline UniqueFd to_high_number(UniqueFd fd) noexcept {
  return UniqueFd(to_high_number(fd.release()));
}

}  // namespace vireo
