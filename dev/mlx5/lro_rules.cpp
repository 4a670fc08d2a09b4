#include "dev/mlx5/lro_rules.h"

#include <cstring>

#include "dev/mlx5/late_libmlx5.h"
#include "dev/verbs/steer.h"

namespace vireo::mlx5 {
namespace {

// First bits of the fields.
enum : size_t {
  kMacHigh = 0x40,
  kMacLow = 0x60,
  kVlanId = 0x74,
  kProtocol = 0x80,
  kHasVlan = 0x90,
  kIpVersion = 0x93,
  kTcpFrom = 0xa0,
  kTcpTo = 0xb0,
  kSource = 0x100,
  kDestination = 0x180,
};
constexpr uint32_t kTcp = 6;

struct alignas(uint64_t) Parameters {
  size_t bytes = MatchFields::size();
  MatchFields fields;
  mlx5dv_flow_match_parameters* get() {
    return reinterpret_cast<mlx5dv_flow_match_parameters*>(this);
  }
};
static_assert(offsetof(mlx5dv_flow_match_parameters, match_buf) == sizeof(size_t));

}  // namespace

Match match_of(const FlowKey& key, const std::optional<std::array<uint8_t, 6>>& mac) {
  Match m;
  const auto ask = [&](size_t at, unsigned bits, uint32_t value) {
    m.value.set(at, bits, value);
    m.mask.set(at, bits, UINT32_MAX);
  };
  if (mac && !key.local.addr.is_unspecified()) {
    const auto& b = *mac;
    ask(kMacHigh, 32, uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3]);
    ask(kMacLow, 16, uint32_t{b[4]} << 8 | b[5]);
  }
  if (key.vlan.value() != 0) {
    ask(kHasVlan, 1, 1);
    ask(kVlanId, 12, key.vlan.value());
  }
  ask(kIpVersion, 4, key.v6 ? 6 : 4);
  ask(kProtocol, 8, kTcp);
  const auto ask_address = [&](size_t at, const IpAddr& a) {
    if (a.is_unspecified()) return;
    for (size_t i = key.v6 ? 0 : 12; i < 16; i += 4) {
      uint32_t word;
      std::memcpy(&word, a.bytes().data() + i, sizeof word);
      ask(at + i * 8, 32, be32toh(word));
    }
  };
  ask_address(kDestination, key.local.addr);
  ask(kTcpTo, 16, key.local.port);
  if (key.is_exact()) {
    ask_address(kSource, key.remote.addr);
    ask(kTcpFrom, 16, key.remote.port);
  }
  return m;
}

LroRules::~LroRules() {
  if (!context_->is_ours()) return;
  for (const Matcher& m : matchers_) library().destroy_matcher(m.made);
}

mlx5dv_flow_matcher* LroRules::matcher_for(uint16_t priority, const MatchFields& mask) {
  for (const Matcher& m : matchers_)
    if (m.priority == priority && m.mask == mask) return m.made;
  Parameters parameters;
  parameters.fields = mask;
  mlx5dv_flow_matcher_attr attr{};
  attr.type = IBV_FLOW_ATTR_NORMAL;
  attr.priority = priority;
  attr.match_criteria_enable = 1;  // the outer headers
  attr.match_mask = parameters.get();
  mlx5dv_flow_matcher* const made = library().create_matcher(context_->get(), &attr);
  if (made != nullptr) matchers_.push_back({priority, mask, made});
  return made;
}

Result<void> LroRules::prove() {
  const FlowKey any{IpProto::kTcp, false, VlanId(), {IpAddr(), 1, 0}, {}};
  if (matcher_for(verbs::priority_of(any), match_of(any, std::nullopt).mask) == nullptr)
    return fail_errno("mlx5dv_create_flow_matcher");
  return {};
}

ibv_flow* LroRules::create(const FlowKey& key, const std::optional<std::array<uint8_t, 6>>& mac,
                           FlowTag tag) {
  const Match match = match_of(key, mac);
  mlx5dv_flow_matcher* const matcher = matcher_for(verbs::priority_of(key), match.mask);
  if (matcher == nullptr) return nullptr;
  Parameters value;
  value.fields = match.value;
  mlx5dv_flow_action_attr actions[2]{};
  actions[0].type = MLX5DV_FLOW_ACTION_DEST_DEVX;
  actions[0].obj = tir_.get();
  actions[1].type = MLX5DV_FLOW_ACTION_TAG;
  actions[1].tag_value = tag.value();
  const bool has_tag = tag.value() > 0 && tag.value() <= verbs::kMaxTag;
  return library().create_flow(matcher, value.get(), has_tag ? 2 : 1, actions);
}

}  // namespace vireo::mlx5
