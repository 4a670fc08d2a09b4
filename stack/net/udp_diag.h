// The UDP sockets of the network namespace at a local port. Some 20 us, most of them for the walk
// through the kernel's table (16,384 chains or more) for each family.
// Owner: none (a function). Thread: any of the network namespace in question.
#pragma once

#include <vector>

#include "stack/net/inet_diag.h"

namespace vireo::net {

/// In the kernel's order. Errors: as any_diag_of().
inline Result<std::vector<DiagSocket>> udp_sockets(uint16_t port) {
  constexpr uint32_t kAllStates = ~uint32_t{0};
  std::vector<DiagSocket> found;
  const auto walked = any_diag(IpProto::kUdp, kAllStates, port, [&](const DiagSocket& s) {
    found.push_back(s);
    return false;
  });
  if (!walked) return std::unexpected(walked.error());
  return found;
}

}  // namespace vireo::net
