// Queries the kernel's TCP connections at a local port. The kernel walks all of its connections:
// milliseconds with a million of them. Thread: any of the network namespace in question.
// Owner: none (a function).
#pragma once

#include "stack/net/inet_diag.h"

namespace vireo::net {

/// Calls is_it(local, remote) for the kernel's connections with local port `port`, including
/// half-open ones and TIME-WAIT but not listeners, until it returns true. @return whether it did.
/// Errors: as any_diag_of().
template <class F>
Result<bool> any_tcp(uint16_t port, F&& is_it) {
  constexpr uint32_t kListen = 1U << 10;  // net/tcp_states.h
  constexpr uint32_t kAllStates = 0x1fff;
  return any_diag(IpProto::kTcp, kAllStates & ~kListen, port,
                  [&](const DiagSocket& s) { return is_it(s.local, s.remote); });
}

}  // namespace vireo::net
