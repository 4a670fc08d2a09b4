// A listening socket. Vireo's listener and the kernel's listen at the same time.
// Owner: none (functions). Thread: any; locks are named at each.
#pragma once

#include <sys/socket.h>

#include "core/carriage.h"
#include "core/result.h"
#include "stack/engine/flow.h"
#include "stack/sock/file.h"

namespace vireo {

namespace listener {
Result<void> listen(Handle h, int backlog);
Result<int> accept(Handle h, sockaddr* addr, socklen_t* len, int flags);
/// Vireo's listener joins the kernel's, which other processes serve, too. If that cannot be,
/// nothing changes. No lock held. @return whether it has joined now.
bool join(Handle h) noexcept;
/// Up-call of the engine.
void on_accept(Listener& l);
/// Listener settings from the socket's options; the Fast Open keys are read from `fd`, its kernel
/// socket.
ListenOptions listen_options(const File& f, int fd);
/// shutdown(SHUT_RD) and close: closes Vireo's listener. Control lock held, engine's not.
void stop(File& f, Mode then = Mode::kUndecided);
/// Undoes what listen() has done to the kernel's listener: it waits again, if the program's does.
void restore_blocking(const File& f, int fd);
/// Leaves it to the kernel alone from now on. Control lock held, engine's not.
void give_to_kernel(File& f, int fd, const Refusal& why, Forced forced);
}  // namespace listener

}  // namespace vireo
