// The shadow: the kernel socket beneath a File. Its addresses, its port, and the calls that it
// serves. Owner: none (functions). Thread: any; locks are named at each.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <span>

#include "core/address.h"
#include "core/fd.h"
#include "core/result.h"
#include "core/user_memory.h"
#include "stack/sock/file.h"
#include "stack/sock/stack.h"

namespace vireo {

Result<Endpoint> kernel_name(int fd);
Result<Endpoint> kernel_peer(int fd);
/// No local port (`port`; 0: any) or no descriptor was free: releases the leased ones. @return
/// whether there were any. The engine's lock not held.
bool give_up_leases(Stack& stack, uint16_t port);
/// Copies an address to the caller as the kernel does: cut to *len, *len = the full length. Does
/// nothing if `addr` is null. @return errno, or 0 (net/socket.c move_addr_to_user).
int give_address(const Endpoint& e, int family, sockaddr* addr, socklen_t* len);
/// Checks an address from the program. @return errno, or 0 (move_addr_to_kernel).
inline int address_error(const sockaddr* addr, socklen_t len) noexcept {
  if (len > sizeof(sockaddr_storage)) return EINVAL;
  return len != 0 && !is_readable(addr, len) ? EFAULT : 0;
}
/// A private dup of the shadow, which keeps its port; empty if no descriptor is free.
UniqueFd dup_shadow(int fd) noexcept;

/// Puts the kernel socket `by` at the open number `fd`, whose FD_CLOEXEC stays.
void replace_shadow(int fd, int by) noexcept;

/// The same at all descriptors of the File.
void replace_shadows(const File& f, int by) noexcept;

/// recvmsg(2) and sendmsg(2) on the shadow, counted.
Result<ssize_t> kernel_recvmsg(Handle h, msghdr& msg, int flags);
Result<ssize_t> kernel_sendmsg(Handle h, const msghdr& msg, int flags);
/// recvmmsg(2) and sendmmsg(2) likewise.
Result<int> kernel_recvmmsg(Handle h, std::span<mmsghdr> all, int flags, timespec* timeout);
Result<int> kernel_sendmmsg(Handle h, std::span<mmsghdr> all, int flags);
/// recv(2) and send(2) likewise, which cost less.
Result<ssize_t> kernel_recv(Handle h, const iovec& to, int flags);
Result<ssize_t> kernel_send(Handle h, const iovec& from, int flags);

}  // namespace vireo
