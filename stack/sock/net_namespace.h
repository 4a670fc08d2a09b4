// Network namespaces. A thread may enter another (setns(2), unshare(2)), and the sockets that it
// makes there belong there, wherever it is when it uses them. Vireo has the interfaces of one:
// home, where the process was before any thread of it left. All other sockets are the kernel's.
// Owner: process. Thread: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace vireo::net_namespace {

/// SO_NETNS_COOKIE of home; 0: nobody has left. Not to be written by others.
inline constinit std::atomic<uint64_t> g_home{0};

/// This thread enters another next, or may. The first who does is at home.
void before_move() noexcept;
inline bool has_anyone_moved() noexcept { return g_home.load(std::memory_order_relaxed) != 0; }

// ---- after before_move(); false if the kernel cannot tell (before Linux 5.14)
/// The socket was made at home.
bool is_of_home(int fd) noexcept;
/// What this thread makes now is of home.
bool is_thread_home() noexcept;

}  // namespace vireo::net_namespace
