// TCP Fast Open as configured on sockets. Owner: none (functions). Thread: any.
#pragma once

#include <sys/socket.h>

#include "core/result.h"
#include "stack/engine/flow.h"
#include "stack/sock/file.h"

namespace vireo {

namespace tcp_socket {

/// sendmsg(2) with MSG_FASTOPEN.
Result<ssize_t> send_fast_open(Handle h, const msghdr& msg, int flags);
/// The Fast Open settings of the socket.
FastConnect fast_connect(const File& f, bool data_follows) noexcept;
/// A listener's TCP_FASTOPEN_KEY, read from its kernel socket, else the present value of
/// net.ipv4.tcp_fastopen_key. None: neither is set, or the latter cannot be read.
tcp::FastOpenKeys fast_open_keys(int fd) noexcept;

}  // namespace tcp_socket

}  // namespace vireo
