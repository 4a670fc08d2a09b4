// Network namespaces. A thread may enter another one (setns(2), unshare(2)); the sockets that it
// makes there belong there, wherever it uses them. Vireo carries sockets of one namespace only:
// home, where the process was before any of its threads left. All other sockets are the kernel's.
// Owner: process. Thread: any.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace vireo::net_namespace {

/// SO_NETNS_COOKIE of a namespace; 0: not known (before Linux 5.14, no descriptor to be had).
using Cookie = uint64_t;

/// Home's; 0: nobody has left. Not to be written by others.
inline constinit std::atomic<Cookie> g_home{0};

// ---- before and after a call that may take this thread elsewhere; async-signal-safe, and need no
// ---- table of libc's functions
Cookie here() noexcept;
/// It did, from there. The first who leaves was at home.
void left(Cookie from) noexcept;
/// setns(2) with this type.
constexpr bool may_enter(int type) { return type == 0 || (type & CLONE_NEWNET) != 0; }
/// Makes the call, which returns 0 if it took this thread elsewhere.
template <class Call>
auto leave_by(Call call) noexcept {
  const Cookie from = here();
  const auto result = call();
  if (result == 0) left(from);
  return result;
}

inline bool has_anyone_left() noexcept { return g_home.load(std::memory_order_relaxed) != 0; }

// ---- after left(); false if it cannot be known
/// The socket was made at home.
bool is_of_home(int fd) noexcept;
/// What this thread makes now is of home. True if nobody has left.
bool is_thread_home() noexcept;

}  // namespace vireo::net_namespace
