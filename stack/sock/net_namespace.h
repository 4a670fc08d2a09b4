// Network namespaces. A thread may enter another one (setns(2), unshare(2)); the sockets that it
// makes there belong to it, wherever they are used. Vireo carries sockets of one namespace only:
// home, where the process was before any of its threads left. All other sockets are the kernel's.
// Owner: process. Thread: any.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace vireo::net_namespace {

/// SO_NETNS_COOKIE of a namespace; 0: unknown (before Linux 5.14, or no descriptor free).
using Cookie = uint64_t;

/// Home's cookie; 0: no thread has left. Written here only.
inline constinit std::atomic<Cookie> g_home{0};

// ---- before and after a call that may move this thread; async-signal-safe, without the table of
// ---- libc's functions
Cookie here() noexcept;
/// This thread has left `from`. The first to leave was at home.
void left(Cookie from) noexcept;
/// Whether setns(2) with this type may change the network namespace.
constexpr bool may_enter(int type) { return type == 0 || (type & CLONE_NEWNET) != 0; }
/// Makes the call, which returns 0 if it moved this thread.
template <class Call>
auto leave_by(Call call) noexcept {
  const Cookie from = here();
  const auto result = call();
  if (result == 0) left(from);
  return result;
}

inline bool has_anyone_left() noexcept { return g_home.load(std::memory_order_relaxed) != 0; }

// ---- after left(); false if unknown
/// The socket was made at home.
bool is_of_home(int fd) noexcept;
/// Sockets that this thread makes now belong to home. True if no thread has left.
bool is_thread_home() noexcept;

}  // namespace vireo::net_namespace
