// A flow key as a rule of ibv_create_flow(3).
// Owner: none (values). Thread: any.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <optional>

#include "core/address.h"
#include "core/types.h"

namespace vireo::verbs {

/// Laid out as the kernel reads it: the attribute, then one specification for each layer.
struct FlowRequest {
  ibv_flow_attr attr;
  std::byte specs[sizeof(ibv_flow_spec_eth) + sizeof(ibv_flow_spec_ipv6) +
                  sizeof(ibv_flow_spec_tcp_udp) + sizeof(ibv_flow_spec_action_tag)];
};

/// That a completion has room for.
inline constexpr uint32_t kMaxTag = 0xffffff;

/// As the contract wants overlapping rules to be: exact ones first.
uint16_t priority_of(const FlowKey& key);

/// Exact flows go first, then local address and port, then port alone. A multicast group is asked
/// for by its own MAC (RFC 1112 §6.4, RFC 2464 §7), unicast by `mac` if it is given; a VLAN by
/// its id, if the key has one. `tag` 0: none is asked for.
FlowRequest flow_request(const FlowKey& key, uint8_t port,
                         const std::optional<std::array<uint8_t, 6>>& mac, FlowTag tag);

}  // namespace vireo::verbs
