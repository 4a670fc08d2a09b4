// TCP Fast Open as sockets ask for it. Owner: none (functions). Thread: any.
#pragma once

#include <sys/socket.h>

#include "core/result.h"
#include "stack/engine/flow.h"
#include "stack/sock/file.h"

namespace vireo {

namespace tcp_socket {

/// sendmsg(2) with MSG_FASTOPEN.
Result<ssize_t> send_fast_open(Handle h, const msghdr& msg, int flags);
/// What the socket asks of Fast Open.
FastConnect fast_connect(const File& f, bool data_follows) noexcept;
/// TCP_FASTOPEN_KEY of a listener, by its kernel's socket, else net.ipv4.tcp_fastopen_key as it is
/// now. None: neither was set, or the latter is not ours to read.
tcp::FastOpenKeys fast_open_keys(int fd) noexcept;

}  // namespace tcp_socket

}  // namespace vireo
