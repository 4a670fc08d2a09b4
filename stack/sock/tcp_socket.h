// The calls of a TCP socket that is or was carried (TcpSocket is in file.h). Opening and closing
// are in tcp_socket.cpp, data transfer in tcp_recv.cpp and tcp_send.cpp.
// Owner: none (functions). Thread: any; locks are named at each.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <span>

#include "core/result.h"
#include "stack/engine/flow.h"
#include "stack/sock/blocking.h"
#include "stack/sock/file.h"

namespace vireo {

struct FrameTimes;  // stack/sock/stamps.h

namespace tcp_socket {
/// Flags that need no special path.
inline constexpr int kPlainFlags = MSG_DONTWAIT | MSG_NOSIGNAL;

/// How a connection is opened, and whether the call waits for it.
struct Opening {
  bool for_data = false;  ///< sendmsg(MSG_FASTOPEN): the SYN is sent with the data of the next
                          ///< send(); a kernel socket is left as it is
  bool nonblock = false;
};
/// The route that a connection of `f` takes, by its options. Control lock held, or `f` is not yet
/// in the table.
RouteRequest way_to(const File& f, const Endpoint& local, const Endpoint& to);
Result<void> connect(Handle h, const Endpoint& to, const sockaddr* addr, socklen_t len,
                     Opening how);
/// Finishes connect(), by Linux's socket states. `first`: in the call that began it. The engine's
/// lock is held on entry and return.
Result<void> finish_connect(Handle h, Engine& e, const SignalMark& signals, bool first,
                            bool nonblock, FilePin& pin);
Result<void> disconnect(Handle h, const sockaddr* addr, socklen_t len);
/// Makes a disconnected socket new again, as the kernel socket beneath it is. Control lock held,
/// the engine's not.
void renew(Handle h);
Result<ssize_t> recv(Handle h, std::span<const iovec> iov, int flags);
/// The same; `times` are those of the last byte received.
Result<ssize_t> recv_timed(Handle h, std::span<const iovec> iov, int flags, FrameTimes& times);
Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags);
/// With ancillary data.
Result<ssize_t> send_with_control(Handle h, const msghdr& msg, int flags);
Result<void> shutdown(Handle h, int how);
/// Sends what MSG_MORE held back. No lock held.
void push(Handle h);
/// Returns the pending error and clears it. Holder of the engine's lock.
int take_error(File& f) noexcept;
/// Waits as SO_LINGER asks, before the last close. No lock held.
void linger(Handle h);
/// Up-call of the engine.
void on_effects(TcpFlow& flow, tcp::Effects e);
ReadyBits readiness(const File& f, ReadyBits asked) noexcept;
}  // namespace tcp_socket

}  // namespace vireo
