// Tests that a device is usable: many RDMA devices have no raw-packet QPs or no flow steering, and
// only the attempt shows it. Owner: none (function). Thread: as the open.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "core/result.h"
#include "dev/verbs/context.h"

namespace vireo::verbs {

/// Creates a small QP and a rule for one flow between documentation addresses (RFC 5737), then
/// removes them. `mac` as for flow_request(). Errors: those of Pair::create() and of the rule.
Result<void> prove(const std::shared_ptr<Context>& context,
                   const std::optional<std::array<uint8_t, 6>>& mac);

}  // namespace vireo::verbs
