// Vireo's own threads in a program's process.
// Owner: none (functions). Thread: any.
#pragma once

#include <pthread.h>

namespace vireo {

/// As pthread_create(3). The new thread blocks all signals but faults, which would end the process
/// without its handler if blocked.
/// @return 0, or an error number
int start_own_thread(pthread_t& thread, void* (*run)(void*), void* argument) noexcept;

/// The calling thread is one of them.
bool is_own_thread() noexcept;

/// Number of these threads.
int own_threads() noexcept;
/// In the child of a fork, which has none: resets the number.
void forget_own_threads() noexcept;

}  // namespace vireo
