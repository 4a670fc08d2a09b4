// poll(2), select(2) and epoll(7) over descriptors of ours and the kernel's, mixed. Preload
// forwards to these when at least one descriptor of the call is ours; all others go straight to
// libc.
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

/// Some descriptor in `fds` is carried, listening or an epoll that holds such: the kernel's own
/// poll would not do. None if they are too many, or lie where nothing can be written: that the
/// kernel refuses in its own words.
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
/// epoll_ctl(2) on an epoll of ours; `fd` may be anything.
Result<void> epoll_ctl(Handle epoll, int op, int fd, const epoll_event* event);
/// epoll_pwait2(2).
Result<int> epoll_wait(Handle epoll, std::span<epoll_event> events, const timespec* timeout,
                       const sigset_t* mask);

}  // namespace vireo::sock
