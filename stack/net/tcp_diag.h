// Asks the kernel which TCP connections it holds at a local port, by sock_diag(7). The kernel walks
// all of its connections: milliseconds where it has a million. Thread: any of the network namespace
// that is asked. Owner: none (a function).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/address.h"
#include "core/result.h"

namespace vireo::net {

/// Calls is_it(local, remote) for the kernel's connections whose local port is `port`, half-open
/// ones and those in TIME-WAIT among them, listeners not, until it says true. @return whether it
/// did. Errors: of socket(2), write(2), read(2); what the kernel's answer says (ENOENT: no
/// tcp_diag).
template <class F>
Result<bool> any_tcp(uint16_t port, F&& is_it);

using TcpSeen = bool (*)(void* context, const IpAddr& local, const IpAddr& remote);
Result<bool> any_tcp_of(uint16_t port, TcpSeen seen, void* context);

template <class F>
Result<bool> any_tcp(uint16_t port, F&& is_it) {
  return any_tcp_of(
      port,
      [](void* f, const IpAddr& local, const IpAddr& remote) {
        return static_cast<bool>((*static_cast<std::remove_reference_t<F>*>(f))(local, remote));
      },
      &is_it);
}

}  // namespace vireo::net
