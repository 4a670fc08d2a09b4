// Asks the kernel for its sockets at a local port, by sock_diag(7).
//
// Owner: none (functions). Thread: any of the network namespace in question.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/address.h"
#include "core/result.h"
#include "core/types.h"

namespace vireo::net {

/// A socket as the kernel describes it (linux/inet_diag.h: struct inet_diag_msg).
struct DiagSocket {
  bool v6 = false;      ///< AF_INET6
  bool v6only = false;  ///< IPV6_V6ONLY; told of sockets without a peer only
  IpAddr local;
  IpAddr remote;
  uint16_t remote_port = 0;  ///< 0: no peer
  IfIndex device{};          ///< SO_BINDTODEVICE; 0: none
  uint64_t cookie = 0;       ///< SO_COOKIE

  bool operator==(const DiagSocket&) const = default;
};

using DiagSeen = bool (*)(void* context, const DiagSocket& socket);
/// Calls seen(context, socket) for the sockets of `proto` and both families with local port `port`
/// and a state in `states` (a bit for each, net/tcp_states.h), until it returns true.
/// @return whether it did. Errors: of socket(2), write(2), read(2), and of the kernel's reply
/// (ENOENT: no such module).
Result<bool> any_diag_of(IpProto proto, uint32_t states, uint16_t port, DiagSeen seen,
                         void* context);

template <class F>
Result<bool> any_diag(IpProto proto, uint32_t states, uint16_t port, F&& is_it) {
  return any_diag_of(
      proto, states, port,
      [](void* f, const DiagSocket& s) {
        return static_cast<bool>((*static_cast<std::remove_reference_t<F>*>(f))(s));
      },
      &is_it);
}

}  // namespace vireo::net
