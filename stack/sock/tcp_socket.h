// The calls of a TCP socket that is or was carried (TcpSocket is in file.h). Opening and ending are
// in tcp_socket.cpp, bytes in tcp_recv.cpp and tcp_send.cpp.
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

namespace tcp_socket {
/// Calls without a flag that changes what they do.
inline constexpr int kPlainFlags = MSG_DONTWAIT | MSG_NOSIGNAL;

/// Why a connection begins, and whether its end is waited for.
struct Opening {
  bool for_data = false;  ///< sendmsg(MSG_FASTOPEN): the SYN goes with what send() is given next; a
                          ///< socket of the kernel's is left as it is
  bool nonblock = false;
};
Result<void> connect(Handle h, const Endpoint& to, const sockaddr* addr, socklen_t len,
                     Opening how);
/// The end of what connect() began, by Linux's socket states. `first`: by this call. The engine's
/// lock is held on entry and return.
Result<void> finish_connect(Handle h, Engine& e, const SignalMark& signals, bool first,
                            bool nonblock, FilePin& pin);
Result<void> disconnect(Handle h, const sockaddr* addr, socklen_t len);
/// A socket whose connection is undone begins anew, as what the kernel's beneath is. Control lock
/// held, the engine's not.
void renew(Handle h);
Result<ssize_t> recv(Handle h, std::span<const iovec> iov, int flags);
Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags);
Result<void> shutdown(Handle h, int how);
/// Sends what MSG_MORE held back. No lock held.
void push(Handle h);
/// The pending error, once. Holder of the engine's lock.
int take_error(File& f) noexcept;
/// Waits as SO_LINGER asks, before the last close. No lock held.
void linger(Handle h);
/// Up-call of the engine.
void on_effects(TcpFlow& flow, tcp::Effects e);
ReadyBits readiness(const File& f, ReadyBits asked) noexcept;
}  // namespace tcp_socket

}  // namespace vireo
