// Which queue a frame goes to: the flow rules of one device, matched as a NIC or the XDP program
// would. Exact 5-tuples go first, then local address and port, then port alone. ICMP errors go
// where the packet they quote belongs. Fragments match nothing. Owner: MemDevice. Thread: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/address.h"
#include "core/flow_rules.h"
#include "core/types.h"

namespace vireo {

class Queue;

struct SteeringRule {
  FlowTag tag;
  Queue* queue = nullptr;
};

class SteeringTable {
 public:
  /// @return the rule's id. Errors: EEXIST, ENOSPC.
  Result<uint64_t> add(const FlowKey& key, FlowTag tag, Queue& to) {
    return rules_.add(key, {tag, &to});
  }
  void remove(uint64_t id) noexcept { rules_.remove(id); }
  void remove_all_of(const Queue& queue);
  /// The rule that `frame` matches best, or nullptr.
  const SteeringRule* match(std::span<const std::byte> frame) const;
  size_t size() const { return rules_.size(); }

 private:
  FlowRules<SteeringRule> rules_;
};

/// The flow of a received frame as its receiver names it (local = destination); nullopt if it has
/// no ports.
std::optional<FlowKey> flow_of(std::span<const std::byte> frame);

}  // namespace vireo
