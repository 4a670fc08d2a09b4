// Parses nf_tables expressions, verdicts and data from netlink attributes
// (linux/netfilter/nf_tables.h).
// Owner: none (pure functions). Thread: any.
#pragma once

#include <linux/netlink.h>

#include <string>
#include <string_view>
#include <vector>

#include "stack/filter/ruleset.h"
#include "stack/net/attributes.h"

namespace vireo::filter {

/// nf_tables' numbers are in network order; `otherwise` if the attribute is missing.
uint32_t number(const nlattr* a, uint32_t otherwise = 0);
uint64_t long_number(const nlattr* a);
std::string text(const nlattr* a);

/// Calls `fn` for each attribute nested in `a`.
template <class F>
void for_each_in(const nlattr* a, F&& fn) {
  if (a == nullptr) return;
  const char* p = net::attribute_data(a);
  int left = net::attribute_length(a);
  while (left >= static_cast<int>(NLA_HDRLEN)) {
    const auto* each = reinterpret_cast<const nlattr*>(p);
    if (each->nla_len < NLA_HDRLEN || each->nla_len > left) return;
    fn(each);
    p += NLA_ALIGN(each->nla_len);
    left -= static_cast<int>(NLA_ALIGN(each->nla_len));
  }
}

/// NFTA_DATA_VALUE or NFTA_DATA_VERDICT.
struct Data {
  Bytes value = {};
  Verdict verdict = {};
};
Data parse_data(const nlattr* a);

/// Adds the expressions of the list; notes in `rules` whether they set marks or disable tracking.
void parse_exprs(const nlattr* list, std::vector<Expr>& to, Ruleset& rules);
/// An x_tables target as a step of a rule.
Expr xt_target(std::string_view name, Ruleset& rules);

}  // namespace vireo::filter
