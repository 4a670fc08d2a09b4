// The program's Stack, made with the first socket or epoll, so that preloading costs other programs
// nothing. Owner: process, never destroyed. Thread: any.
#pragma once

#include "stack/sock/stack.h"

namespace vireo::preload {

/// Null if it cannot be made, and in the child of a vfork: use the kernel.
Stack* get_stack() noexcept;

/// The stack that this process may shut down or hand over: not that of a parent waiting in vfork,
/// and not during a call of Vireo's, which would deadlock on its own locks. Null: none.
Stack* own_stack() noexcept;

/// The process ends without running more of the program: sends queued data first.
void leave_process() noexcept;

/// The process has a stack, and soon threads of Vireo's. If its first thread has ended before that,
/// a watcher must detect when none of the program's own are left (calls_process.cpp).
void note_new_stack() noexcept;

/// Around a call that makes a child with a copy of this memory. pthread_atfork(3) calls these
/// around fork(2); other callers call them by hand, if there is a stack. The thread is inside the
/// library meanwhile: it holds the library's locks.
void before_fork() noexcept;
void after_fork_in_parent() noexcept;
void after_fork_in_child() noexcept;

/// Hands unused connections over, as before_fork() does, because a child that runs another program
/// (vfork, posix_spawn) may be meant to use them.
void hand_over_to_child() noexcept;
/// vfork(2) comes next: its child has replaced no number yet. calls_fd.cpp
void forget_replaced() noexcept;

/// A child comes that shares or copies the descriptors, and for which those do not run.
void note_unknown_child() noexcept;

/// Around exec(2): descriptors that stay open go to the next program, the kernel closes the others.
void before_exec() noexcept;
/// @return -1, as exec.
int exec_failed() noexcept;

/// Whether to call the fork functions around a clone(2): there is a stack, and the child has a copy
/// of the memory, its own descriptors, and this network namespace.
bool must_tell_fork(unsigned long clone_flags) noexcept;

}  // namespace vireo::preload
