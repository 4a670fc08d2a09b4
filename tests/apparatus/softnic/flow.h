// Flow rules of a port: which queue pairs a received frame goes to. Rules that name a TCP or UDP
// flow are found by its key, however many there are; the others are compared one by one.
// Owner: Port. Thread: holder of the port's lock. Source: ibv_create_flow(3).
#pragma once

#include <infiniband/verbs.h>

#include <expected>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/address.h"
#include "core/flow_rules.h"
#include "tests/apparatus/softnic/frame.h"

namespace vireo::softnic {

struct Qp;

struct Flow : ibv_flow {
  Qp* qp = nullptr;
  ibv_flow_attr_type kind = IBV_FLOW_ATTR_NORMAL;
  uint16_t priority = 0;
  uint64_t age = 0;  ///< the older, the less
  bool drops = false;
  uint32_t tag = 0;
  std::vector<ibv_flow_spec> specs;
};

/// The TCP or UDP flow that the rule asks for; nullopt: it asks for something else.
std::optional<FlowKey> key_of(const Flow& flow);
/// Frames of a VLAN (key_of() does not say which), or of a priority there.
bool asks_vlan(const Flow& flow);

/// The receivers of one frame.
struct Receivers {
  static constexpr size_t kMax = 16;  ///< copies of one frame; more are not delivered
  Qp* qp[kMax] = {};
  uint32_t tag[kMax] = {};  ///< of the rule that chose it
  size_t count = 0;
  void add(Qp* q, uint32_t with_tag) {
    for (size_t i = 0; i < count; ++i)
      if (qp[i] == q) return;
    if (count == kMax) return;
    tag[count] = with_tag;
    qp[count++] = q;
  }
};

class FlowTable {
 public:
  /// Errors: EINVAL the attribute contradicts itself, EOPNOTSUPP a spec or action of another kind,
  /// ENOMEM.
  std::expected<Flow*, int> add(Qp& qp, const ibv_flow_attr& attr);
  void remove(Flow* flow);
  unsigned count() const { return static_cast<unsigned>(flows_.size()); }
  bool has_rules_of(const Qp& qp) const;
  /// Normal rules by ascending priority, the first that matches wins (for multicast: every rule of
  /// that priority that matches); then the default rules. Sniffers see every frame.
  Receivers receivers(const Headers& h);
  /// Rules that were held against frames, so far.
  uint64_t compared() const { return compared_; }

 private:
  using Chain = std::vector<Flow*>;  ///< by priority, then age
  struct Keyed {
    uint64_t id = 0;  ///< its own, in keyed_
    Chain flows;
  };
  static constexpr size_t kChains = 4;
  std::array<const Chain*, kChains> chains_for(const Headers& h) const;
  const Flow* first_match(const Chain& chain, const Headers& h);
  Chain* chain_of(const Flow& flow);

  std::unordered_map<const Flow*, std::unique_ptr<Flow>> flows_;
  FlowRules<Keyed> keyed_;
  Chain others_;
  uint64_t last_age_ = 0;
  uint64_t compared_ = 0;
};

}  // namespace vireo::softnic
