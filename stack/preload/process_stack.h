// The program's Stack, made when the first socket or epoll asks for it, so that preloading costs
// other programs nothing. Owner: process, never destroyed. Thread: any.
#pragma once

#include "stack/sock/stack.h"

namespace vireo::preload {

/// Null if it cannot be had, or in the child of a vfork: use the kernel.
Stack* get_stack() noexcept;

/// The stack that is this process's to end or to give away: not of a parent that waits for us
/// (vfork), nor amid a call of ours, whose locks would wait for themselves. Null: none.
Stack* own_stack() noexcept;

/// No program code runs after this: what is owed to peers goes out first.
void leave_process() noexcept;

/// The process has a stack, and soon threads of ours. Where its first thread has ended before that,
/// somebody must see when it has no other of its own (calls_process.cpp).
void note_new_stack() noexcept;

/// Around what makes a child with a copy of our memory: pthread_atfork(3) calls them around
/// fork(2), and who makes one otherwise calls them by hand, if there is a stack. The thread is
/// inside the library meanwhile: it holds its locks.
void before_fork() noexcept;
void after_fork_in_parent() noexcept;
void after_fork_in_child() noexcept;

/// A child that runs another program (vfork, posix_spawn) may be meant for what this one has not
/// touched yet: as before_fork() does.
void hand_over_to_child() noexcept;

/// Around exec(2): what this program leaves is the next one's, or the kernel's to end.
void before_exec() noexcept;
/// @return -1, as exec.
int exec_failed() noexcept;

/// Are they to be called around a clone(2)? There is a stack, and the child has a copy of our
/// memory, descriptors of its own, and our network.
bool must_tell_fork(unsigned long clone_flags) noexcept;

}  // namespace vireo::preload
