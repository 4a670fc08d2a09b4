// Judges whether the host's rules let the packets of a flow pass. A rule whose conditions cannot be
// judged may match; so the answer errs on the side of the rules. Packets are assumed to be valid:
// those of a connection have its state, and flags that make sense.
// Owner: none (pure functions). Thread: any. Allocates; some microseconds for some rules.
// Source: nft(8), iptables-extensions(8); net/netfilter/nf_tables_core.c for behaviour.
#pragma once

#include <optional>
#include <string>

#include "stack/filter/flow.h"
#include "stack/filter/ruleset.h"

namespace vireo::filter {

/// What stands in the way, as a person would look it up: "inet filter input, handle 7". None:
/// whatever packet it is for, nothing can refuse it.
std::optional<std::string> obstacle(const Ruleset& rules, const Flow& flow);

}  // namespace vireo::filter
