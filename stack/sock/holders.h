// Which processes have the kernel socket beneath a connection (Holders, in file.h), as far as this
// one can know. What it cannot see makes them unknown for good. fork(2) itself is in heirs.cpp.
// Owner: none (functions). Thread: any; no lock.
#pragma once

#include "stack/sock/stack.h"

namespace vireo::sock {

/// A child comes next that has the descriptors and soon runs another program, which keeps those
/// without FD_CLOEXEC (vfork, posix_spawn, popen, system).
void note_spawn(Stack& stack) noexcept;
/// A child comes next that has them, and for which no fork handler runs (_Fork, clone).
/// Async-signal-safe.
void note_child(Stack& stack) noexcept;
/// The socket goes where Vireo does not see what becomes of it.
void note_elsewhere(int fd) noexcept;

}  // namespace vireo::sock
