// Rings as the program sees them: one for each engine, with a descriptor that is readable while one
// of the sockets has something to read. The descriptor is an epoll of Vireo's sockets that asked
// for their rings; with VMA_SOCKETXTREME=1, of all that the engine has. Owner: process. Thread:
// any. Guard: a lock of its own, before control locks.
#pragma once

#include <sys/socket.h>

#include <span>

#include "core/result.h"
#include "stack/sock/fd_table.h"

namespace vireo {
class Engine;
}

namespace vireo::extra {

/// The number of rings of a socket: 0 before bind, connect or listen, and on the kernel.
int count_rings(Handle h) noexcept;
/// Writes the descriptors of its rings, at most `out`. @return how many.
Result<int> socket_rings(Handle h, std::span<int> out);
/// The ring by which a UDP socket sends to `to`. Errors: EINVAL no address, or no socket of
/// Vireo's; ENODATA the kernel sends there.
Result<int> sending_ring(Handle h, const sockaddr* to, socklen_t len);

/// The ring of a descriptor; its epoll is empty if it is none.
struct Ring {
  Engine* engine = nullptr;
  Handle epoll;  ///< the program may have closed it
};
Ring find_ring(int fd) noexcept;

// ---- VMA_SOCKETXTREME=1: all sockets are in their rings, for edges (EPOLLET)
/// The program has made a socket, which has no ring yet.
void note_socket(int fd) noexcept;
/// Adds those that have one now.
void join_noted() noexcept;
/// Adds an accepted connection.
void join_accepted(Handle h, const Ring& ring) noexcept;

// Around fork(2).
void fork_prepare() noexcept;
void fork_parent() noexcept;
void fork_child() noexcept;

}  // namespace vireo::extra
