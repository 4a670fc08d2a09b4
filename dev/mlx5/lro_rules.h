// Flow rules that lead to a TIR. They use the device's own match values, because ibv_create_flow(3)
// supports only queue pairs. Rules that match the same fields share a matcher.
// Owner: Mlx5Queue. Thread: holder of the VerbsDevice's lock.
// Source: mlx5dv_create_flow(3); Linux's mlx5_ifc.h (fte_match_set_lyr_2_4).
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/address.h"
#include "core/types.h"
#include "dev/mlx5/command.h"
#include "dev/mlx5/lro.h"

namespace vireo::mlx5 {

/// Fields of the outer headers.
using MatchFields = Command<0x40>;
struct Match {
  MatchFields value, mask;
};
/// The match of verbs::flow_request(), in the device's format.
Match match_of(const FlowKey& key, const std::optional<std::array<uint8_t, 6>>& mac);

class LroRules {
 public:
  LroRules(std::shared_ptr<verbs::Context> context, Tir tir)
      : context_(std::move(context)), tir_(std::move(tir)) {}
  LroRules(const LroRules&) = delete;
  /// Creates a matcher to test support. Errors: those of the driver.
  Result<void> prove();
  ~LroRules();
  /// The caller destroys the rule with ibv_destroy_flow(3) before this object. Null: refused, errno
  /// is set. `tag` 0: none.
  ibv_flow* create(const FlowKey& key, const std::optional<std::array<uint8_t, 6>>& mac,
                   FlowTag tag);

 private:
  struct Matcher {
    uint16_t priority;
    MatchFields mask;
    mlx5dv_flow_matcher* made;
  };
  mlx5dv_flow_matcher* matcher_for(uint16_t priority, const MatchFields& mask);
  std::shared_ptr<verbs::Context> context_;
  Tir tir_;
  std::vector<Matcher> matchers_;
};

}  // namespace vireo::mlx5
