// O_ASYNC (fcntl(2), socket(7)): a signal when a socket may be read or written. The kernel signals
// for its side of a socket. For our side a watcher does: F_SETFL with O_ASYNC makes it, and it
// lives as long as the socket. Sockets without O_ASYNC pay nothing.
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
