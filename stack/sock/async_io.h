// O_ASYNC (fcntl(2), socket(7)): a signal when a socket becomes readable or writable. The kernel
// signals for its side of a socket, a watcher for Vireo's side: F_SETFL with O_ASYNC creates it,
// and it lives as long as the socket. Sockets without O_ASYNC cost nothing.
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
/// In the form of fcntl(2) F_GETOWN_EX.
f_owner_ex owner_in(const SignalOwner& o);
/// F_SETOWN of a TCP socket. Control lock held.
void set_async_owner(const File& f, const SignalOwner& o) noexcept;
/// In the child of a fork, which has no watchers.
void reset_async_after_fork() noexcept;

}  // namespace vireo::sock
