// Which way a datagram takes: where to, by the engine or the kernel's socket, from which address,
// by which interface. Owner: none (functions). Thread: the sender's; with Engine, the holder of its
// lock.
#pragma once

#include <sys/socket.h>

#include <optional>

#include "core/address.h"
#include "core/types.h"
#include "stack/engine/engine.h"
#include "stack/sock/file.h"
#include "stack/sock/send_control.h"

namespace vireo::udp_socket {

/// Flags of a send that need nothing special.
inline constexpr int kPlainFlags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_CONFIRM;

/// The datagram's destination; nullopt: leave it to the kernel.
std::optional<Endpoint> destination(const File& f, const msghdr& msg);
/// Whether the kernel's socket must send it.
bool is_for_kernel(const File& f, int flags, const Endpoint& to);
/// The source address that the socket's options or `control` choose for `to`; unspecified: that of
/// the route. nullopt: the kernel decides.
std::optional<IpAddr> source_for(const File& f, const Engine& e, const Endpoint& to, IfIndex oif,
                                 const SendControl* control);
/// The interface that the socket's options, the destination or `asked` choose; 0: that of the
/// route. nullopt: two of them differ where they may not (net/ipv6/datagram.c).
std::optional<IfIndex> interface_for(const File& f, const Endpoint& to, const UdpAsked* asked);

}  // namespace vireo::udp_socket
