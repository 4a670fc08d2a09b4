// Decides whether the host's rules let the packets of a flow pass. A rule whose conditions cannot
// be evaluated may match; so the result errs on the side of the rules. Packets are assumed to be
// valid: those of a connection have its state and plausible flags.
// Owner: none (pure functions). Thread: any. Allocates; some microseconds for some rules. Source:
// nft(8), iptables-extensions(8); net/netfilter/nf_tables_core.c for behaviour.
#pragma once

#include <optional>
#include <string>

#include "stack/filter/flow.h"
#include "stack/filter/ruleset.h"

namespace vireo::filter {

/// The rule that may refuse packets of the flow, in a form for users: "inet filter input, handle
/// 7". None: no rule can refuse any of them.
std::optional<std::string> obstacle(const Ruleset& rules, const Flow& flow);

}  // namespace vireo::filter
