// Which side serves a call: TCP, UDP or the kernel, by a first look without a lock. The callee
// checks again under a lock. Owner: none (functions). Thread: any.
#pragma once

#include "core/result.h"
#include "stack/sock/file.h"
#include "stack/sock/stack.h"

namespace vireo::sock {

inline FileKind kind(Handle h) { return h->kind.load(std::memory_order_relaxed); }
inline Mode mode(Handle h) { return h->mode.load(std::memory_order_acquire); }
inline bool is_tcp_carried(Handle h) {
  return mode(h) == Mode::kCarried && kind(h) == FileKind::kTcp;
}
inline bool is_udp_carried(Handle h) {
  return mode(h) == Mode::kCarried && kind(h) == FileKind::kUdp;
}

/// A child has no carried sockets of its parent (fork.cpp); others may cost a system call.
inline bool is_udp_ours(Handle h) {
  return kind(h) == FileKind::kUdp && (h->is_carried() || h->stack->is_owner());
}

/// In the child of a fork: a socket that the parent carries.
inline bool is_void(Handle h) { return mode(h) == Mode::kVoid; }

Result<void> take_inherited(Handle h, const char* call);
/// A void socket's options and flags are the kernel socket's beneath, but for a connection.
inline bool is_void_connection(Handle h) {
  return is_void(h) && h->is_tcp() && h->tcp.link != Link::kUnconnected;
}
/// A call uses the socket: if it is void, it becomes the kernel's. Errors: EBADF, ENOTCONN with a
/// log line, once.
inline Result<void> use(Handle h, const char* call) {
  if (!is_void(h)) [[likely]]
    return {};
  return take_inherited(h, call);
}

}  // namespace vireo::sock
