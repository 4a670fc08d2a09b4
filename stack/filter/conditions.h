// Decides whether an nf_tables rule matches a kind of packets. Owner: none (pure functions).
// Thread: any.
#pragma once

#include <vector>

#include "stack/filter/flow.h"
#include "stack/filter/ruleset.h"

namespace vireo::filter {

/// A possible result of a rule. A verdict map can have several; the last one is kNone if evaluation
/// may continue with the next rule.
struct Outcome {
  Ternary certainty = Ternary::kNo;
  Verdict verdict = {};
};

std::vector<Outcome> outcomes(const Ruleset& rules, const Table& table, const Rule& rule,
                              const Packet& packet);

/// xt_match.cpp: an x_tables match, iptables-extensions(8).
Ternary xt_match(const Expr& e, const Packet& packet, bool marks_are_known);

}  // namespace vireo::filter
