// Proves that a device that opens is also of use: many RDMA devices have no raw-packet queue pairs,
// or no flow steering, and say so only when asked. Owner: none (function). Thread: as the open.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "core/result.h"
#include "dev/verbs/context.h"

namespace vireo::verbs {

/// Makes a small queue pair and a rule for one flow between addresses of documentation (RFC 5737),
/// and removes them. `mac` as for flow_request(). Errors: as Pair::create(), or of the rule.
Result<void> prove(const std::shared_ptr<Context>& context,
                   const std::optional<std::array<uint8_t, 6>>& mac);

}  // namespace vireo::verbs
