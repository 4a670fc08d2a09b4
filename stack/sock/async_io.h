// O_ASYNC (fcntl(2), socket(7)): a signal when something may be read or written. The kernel signals
// for its side of a socket; for ours a watcher does, which a socket has from the F_SETFL that asks
// for it to its end. Others pay nothing.
// Owner: process. Thread: any. Source: Linux fs/fcntl.c send_sigio_to_task.
#pragma once

#include <fcntl.h>

#include "stack/sock/file.h"

namespace vireo {
struct SignalOwner;  // stack/sock/options/values.h
}

namespace vireo::sock {

/// The program set or cleared the flag. Control lock held.
void set_async(Handle h, bool on) noexcept;
bool is_async(const File& f) noexcept;
/// As fcntl(2) F_GETOWN_EX gives it.
f_owner_ex owner_in(const SignalOwner& o);
/// F_SETOWN of a TCP socket. Control lock held.
void set_async_owner(const File& f, const SignalOwner& o) noexcept;
/// The child of a fork: the watchers are gone.
void reset_async_after_fork() noexcept;

}  // namespace vireo::sock
