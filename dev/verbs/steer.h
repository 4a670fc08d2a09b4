// Converts a flow key to a rule for ibv_create_flow(3).
// Owner: none (values). Thread: any.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <optional>

#include "core/address.h"
#include "core/types.h"

namespace vireo::verbs {

/// In the layout the kernel reads: the attribute, then one specification per layer.
struct FlowRequest {
  ibv_flow_attr attr;
  std::byte specs[sizeof(ibv_flow_spec_eth) + sizeof(ibv_flow_spec_ipv6) +
                  sizeof(ibv_flow_spec_tcp_udp) + sizeof(ibv_flow_spec_action_tag)];
};

/// The largest tag that a completion can carry.
inline constexpr uint32_t kMaxTag = 0xffffff;

/// Priority for overlapping rules, as the contract requires: exact ones first.
uint16_t priority_of(const FlowKey& key);

/// Exact flows come first, then local address and port, then port alone. Matches a multicast group
/// by its MAC (RFC 1112 §6.4, RFC 2464 §7), unicast by `mac` if given, a VLAN by its ID if the key
/// has one. `tag` 0: no tag is requested.
FlowRequest flow_request(const FlowKey& key, uint8_t port,
                         const std::optional<std::array<uint8_t, 6>>& mac, FlowTag tag);

}  // namespace vireo::verbs
