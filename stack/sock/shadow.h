// The shadow: the kernel's socket beneath one of ours. Its names, its port, and the calls that it
// serves. Owner: none (functions). Thread: any; locks are named at each.
#pragma once

#include <sys/socket.h>

#include <cerrno>

#include "core/address.h"
#include "core/fd.h"
#include "core/result.h"
#include "core/user_memory.h"
#include "stack/sock/file.h"
#include "stack/sock/stack.h"

namespace vireo {

Result<Endpoint> kernel_name(int fd);
Result<Endpoint> kernel_peer(int fd);
/// The kernel refused for want of a local port (0: of any) or a descriptor: those that the engine
/// keeps go back. @return whether there were any. The engine's lock not held.
bool give_up_leases(Stack& stack, uint16_t port);
/// Gives a sockaddr to the caller as the kernel does: cut to *len, *len = the full length. Nothing
/// to a null `addr`. @return errno, 0: none (net/socket.c move_addr_to_user).
int give_address(const Endpoint& e, int family, sockaddr* addr, socklen_t* len);
/// One that the program gives. @return errno, 0: none (move_addr_to_kernel).
inline int address_error(const sockaddr* addr, socklen_t len) noexcept {
  if (len > sizeof(sockaddr_storage)) return EINVAL;
  return len != 0 && !is_readable(addr, len) ? EFAULT : 0;
}
/// A private dup of the shadow, which keeps its port; empty if there is none to be had.
UniqueFd dup_shadow(int fd) noexcept;

/// recvmsg(2) and sendmsg(2) by it, counted.
Result<ssize_t> kernel_recvmsg(Handle h, msghdr& msg, int flags);
Result<ssize_t> kernel_sendmsg(Handle h, const msghdr& msg, int flags);

}  // namespace vireo
