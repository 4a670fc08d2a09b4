// Tells whether a rule of nf_tables matches a kind of packets. Owner: none (pure functions).
// Thread: any.
#pragma once

#include <vector>

#include "stack/filter/flow.h"
#include "stack/filter/ruleset.h"

namespace vireo::filter {

/// What a rule may do. A verdict map can have several; the last of them, kNone, is there if the
/// next rule may be asked.
struct Outcome {
  Ternary certainty = Ternary::kNo;
  Verdict verdict = {};
};

std::vector<Outcome> outcomes(const Ruleset& rules, const Table& table, const Rule& rule,
                              const Packet& packet);

/// xt_match.cpp: a match of x_tables, iptables-extensions(8).
Ternary xt_match(const Expr& e, const Packet& packet, bool marks_are_known);

}  // namespace vireo::filter
