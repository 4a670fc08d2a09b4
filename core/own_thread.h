// A thread of Vireo's own in a program's process.
// Owner: none (functions). Thread: any.
#pragma once

#include <pthread.h>

namespace vireo {

/// As pthread_create(3), and the new thread gets none of the program's signals, save faults: of a
/// blocked one the kernel tells nobody, it ends the process.
/// @return 0, or the error's number
int start_own_thread(pthread_t& thread, void* (*run)(void*), void* argument) noexcept;

/// How many of them run.
int own_threads() noexcept;
/// The child of a fork has none.
void forget_own_threads() noexcept;

}  // namespace vireo
