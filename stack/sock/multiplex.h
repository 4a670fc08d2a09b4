// poll(2), select(2) and epoll(7) over a mix of Vireo's and the kernel's descriptors. Preload calls
// these if at least one descriptor of the call is Vireo's; otherwise it calls libc.
//
// A timeout of null waits for ever. `mask`, if not null, is in force while the call waits, as in
// ppoll(2). Errors are Linux's; EINTR as in calls.h. Thread: any. Locks: takes control and engine
// locks itself.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <ctime>
#include <span>

#include "core/result.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/stack.h"

namespace vireo::sock {

/// Some descriptor in `fds` is carried, listening or an epoll that holds such, so the kernel's poll
/// would not suffice. False if `fds` is too long or not writable: the kernel returns that error.
bool concerns_us(std::span<pollfd> fds) noexcept;
/// The same for select's sets; any may be null.
bool concerns_us(int nfds, fd_set* read, fd_set* write, fd_set* except) noexcept;

/// poll(2)/ppoll(2). @return how many descriptors have revents.
Result<int> poll(std::span<pollfd> fds, const timespec* timeout, const sigset_t* mask);

/// select(2)/pselect(2): the sets are rewritten on success only.
Result<int> select(int nfds, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
                   const sigset_t* mask);

/// epoll_create1(2): a kernel epoll with a File attached.
Result<int> epoll_create(Stack& stack, int flags);
/// epoll_ctl(2) on an epoll with a File; `fd` may be any descriptor.
Result<void> epoll_ctl(Handle epoll, int op, int fd, const epoll_event* event);
/// epoll_pwait2(2).
Result<int> epoll_wait(Handle epoll, std::span<epoll_event> events, const timespec* timeout,
                       const sigset_t* mask);

}  // namespace vireo::sock
