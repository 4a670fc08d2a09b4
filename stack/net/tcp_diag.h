// Queries the kernel's TCP connections at a local port, by sock_diag(7). The kernel walks all of
// its connections: milliseconds with a million of them. Thread: any of the network namespace in
// question.
// Owner: none (a function).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/address.h"
#include "core/result.h"

namespace vireo::net {

/// Calls is_it(local, remote) for the kernel's connections with local port `port`, including
/// half-open ones and TIME-WAIT but not listeners, until it returns true. @return whether it did.
/// Errors: of socket(2), write(2), read(2), and of the kernel's reply (ENOENT: no tcp_diag).
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
