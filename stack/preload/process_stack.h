// The program's Stack, made when the first socket or epoll asks for it, so that preloading costs
// other programs nothing. Owner: process, never destroyed. Thread: any.
#pragma once

#include "stack/sock/process.h"

namespace vireo::preload {

/// Null if it cannot be had, or in the child of a vfork: use the kernel.
Stack* get_stack() noexcept;

/// Around what makes a child with a copy of our memory: pthread_atfork(3) calls them around
/// fork(2), and who makes one otherwise calls them by hand, if there is a stack. The thread is
/// inside the library meanwhile: it holds its locks.
void before_fork() noexcept;
void after_fork_in_parent() noexcept;
void after_fork_in_child() noexcept;

/// A child that runs another program (vfork, posix_spawn) may be meant for what this one has not
/// touched yet: as before_fork() does.
void hand_over_to_child() noexcept;

/// Does a child of clone(2) have a copy of our memory, descriptors of its own, and our network?
bool is_fork(unsigned long clone_flags) noexcept;

}  // namespace vireo::preload
