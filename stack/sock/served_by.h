// Who serves a call: TCP, UDP or the kernel, by a first look at the socket. Whoever serves it looks
// again under a lock. Owner: none (functions). Thread: any.
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

/// What is carried is carried in no child (fork.cpp); else the question costs a system call.
inline bool is_udp_ours(Handle h) {
  return kind(h) == FileKind::kUdp && (h->is_carried() || h->stack->is_owner());
}

/// A carried connection in the child of a fork.
inline bool is_void(Handle h) { return mode(h) == Mode::kVoid; }

/// What a use of it is answered. A program that needs it is told why, once.
std::unexpected<Err> parents_own(Handle h, const char* call);

}  // namespace vireo::sock
