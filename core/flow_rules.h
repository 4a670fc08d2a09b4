// The flow rules of a device: found by key, so that no flow is steered twice, and by the id that a
// FlowRule holds. Adding, finding and removing take constant time up to a million rules. A rule
// takes 44 bytes and the device's value, and 6 to 12 bytes in the table of keys. Ids are not
// reused: the id of a removed rule is invalid. Owner: one device. Thread: as the device's steer().
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "core/demux_key.h"
#include "core/flow_hash.h"
#include "core/result.h"
#include "core/tag_table.h"

namespace vireo {

/// For a device without a value per rule.
struct NoValue {};

template <class Value = NoValue>
class FlowRules {
 public:
  FlowRules() : hash_key_(FlowHashKey::random()) {}

  /// @return the rule's id. Errors: EEXIST the key has a rule, ENOSPC memory is exhausted.
  Result<uint64_t> add(const FlowKey& flow, const Value& value = {}) {
    const DemuxKey key = DemuxKey::of(flow);
    const uint64_t h = hash(key);
    if (index_of(key, h) != nullptr) return fail(EEXIST, "flow is steered already");
    const uint32_t i = free_ != kNone ? free_ : static_cast<uint32_t>(rules_.size());
    if (!index_.insert(h, i, [this](uint32_t of) { return hash(rules_[of].key); }))
      return fail(ENOSPC, "table of flow rules");
    if (i == free_)
      free_ = rules_[i].life & kNone;
    else
      rules_.emplace_back();
    last_life_ = (last_life_ + 1) & kNone;
    rules_[i] = {key, last_life_, value};
    return id(i);
  }

  const Value* find(const DemuxKey& key) const noexcept {
    const uint32_t* i = index_of(key, hash(key));
    return i == nullptr ? nullptr : &rules_[*i].value;
  }
  Value* find(const DemuxKey& key) noexcept {
    return const_cast<Value*>(std::as_const(*this).find(key));
  }
  /// The value of a rule; nullptr if it was removed.
  Value* get(uint64_t id) noexcept {
    const auto i = static_cast<uint32_t>(id);
    return i < rules_.size() && rules_[i].life == id >> 32 ? &rules_[i].value : nullptr;
  }
  /// Does nothing if it was removed.
  void remove(uint64_t id) noexcept {
    if (get(id) == nullptr) return;
    const auto i = static_cast<uint32_t>(id);
    Rule& r = rules_[i];
    index_.erase(index_of(r.key, hash(r.key)));
    r.life = kFree | std::exchange(free_, i);
  }
  /// Calls fn(id, Value&) for every rule; fn may remove the one it is given.
  template <class F>
  void for_each(F&& fn) {
    for (uint32_t i = 0; i < rules_.size(); ++i)
      if ((rules_[i].life & kFree) == 0) fn(id(i), rules_[i].value);
  }
  size_t size() const { return index_.size(); }

 private:
  static constexpr uint32_t kFree = 1U << 31;
  static constexpr uint32_t kNone = kFree - 1;  ///< no index: end of the free list
  struct Rule {
    DemuxKey key;
    uint32_t life = 0;  ///< number of the rule; or kFree and the next free index
    [[no_unique_address]] Value value{};
  };

  uint64_t hash(const DemuxKey& key) const noexcept { return key.hash(hash_key_); }
  uint64_t id(uint32_t i) const noexcept { return uint64_t{rules_[i].life} << 32 | i; }
  uint32_t* index_of(const DemuxKey& key, uint64_t h) const noexcept {
    return index_.find(h, [&](uint32_t i) { return rules_[i].key == key; });
  }

  FlowHashKey hash_key_;
  TagTable<uint32_t> index_;
  std::deque<Rule> rules_;
  uint32_t free_ = kNone;
  uint32_t last_life_ = 0;
};

}  // namespace vireo
