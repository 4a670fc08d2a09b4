// Threads whose new sockets are carried, or not, whatever VMA_OFFLOADED_SOCKETS says:
// thread_offload of the extra API. Rules and options still apply. Owner: process. Thread: any.
// Guard: a leaf lock of its own; has_any() needs none.
#pragma once

#include <pthread.h>

#include "core/carriage.h"

namespace vireo::thread_choice {

/// Some thread has a choice.
bool has_any() noexcept;
/// For new sockets of the calling thread, as Forced::why: kCarried, kDisabled, or kUndecided.
Carriage of_caller() noexcept;
void set(pthread_t thread, bool is_carried);

// Around fork(2).
void fork_prepare() noexcept;
void fork_parent() noexcept;
void fork_child() noexcept;

}  // namespace vireo::thread_choice
