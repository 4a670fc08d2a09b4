// send(2) with VMA_SND_FLAGS_DUMMY: as a send, but nothing leaves
// (stack/engine/fast_path/warm_send.h). Owner: none (functions). Thread: any. Locks: takes the
// engine's itself.
#pragma once

#include <sys/socket.h>

#include "core/result.h"
#include "stack/sock/fd_table.h"

namespace vireo {

/// libvma's flag, a name of the kernel's own that no program passes to it.
inline constexpr int kDummySend = MSG_SYN;

/// @return the bytes of `msg`, as if they were sent. Errors: EINVAL a socket of the kernel's;
/// EPIPE, ENOTCONN, EAGAIN, EDESTADDRREQ as for a send, without a signal.
Result<ssize_t> send_dummy(Handle h, const msghdr& msg) noexcept;

}  // namespace vireo
