// An RDMA port as the contract's Device. Private to dev/verbs.
// Owner: the engine. Thread: see verbs.h; `lock_` guards rules and events.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "core/flow_rules.h"
#include "dev/device.h"
#include "dev/verbs/context.h"

namespace vireo::verbs {

class VerbsDevice;

/// A queue that is ready, and the pair to which rules lead frames for it.
/// Makes a rule of its own for a queue. Null: refused, it is made by ibv_create_flow(3).
using RuleMaker = ibv_flow* (*)(Queue& to, const FlowKey& key,
                                const std::optional<std::array<uint8_t, 6>>& mac, FlowTag tag);
struct OpenedQueue {
  std::unique_ptr<Queue> queue;
  ibv_qp* pair;
  RuleMaker make_rule = nullptr;  ///< for TCP
};
/// What makes the queues of a device; corrects `caps` by what it was granted.
using QueueMaker = Result<OpenedQueue> (*)(VerbsDevice& device,
                                           const std::shared_ptr<Context>& context,
                                           std::span<std::byte> arena, PacketPool& pool,
                                           DeviceCaps& caps, const VerbsOptions& options);

/// Errors: EINVAL.
Result<void> check(const VerbsOptions& options);

class VerbsDevice final : public Device {
 public:
  VerbsDevice(std::shared_ptr<Context> context, const VerbsTarget& target, Arena& arena,
              const VerbsOptions& options, QueueMaker make);
  ~VerbsDevice() override;

  Result<std::unique_ptr<Queue>> open_queue(QueueId id, PacketPool& pool) override;
  Result<FlowRule> steer(const FlowKey& key, FlowTag tag, Queue& to) override;

  bool has_moved() const noexcept override { return has_moved_; }

  /// The queue ends: so do its rules, and its number is free.
  void close(const Queue& queue) noexcept;
  /// Its queue drives the rings itself and tells the tags of rules.
  void set_kind(DeviceKind kind, const char* mode, bool tags);
  /// Reads what the device has to tell. @return false: it is gone. May cost a system call.
  bool is_there() noexcept;
  /// A queue has seen an error that only a dead device gives.
  void note_gone() noexcept { health_.store(Health::kGone, std::memory_order_relaxed); }
  /// What is_there() found last.
  bool is_gone() const noexcept { return health() == Health::kGone; }

  /// The pair is in the error state, by a completion or an event: nothing is posted until its queue
  /// has begun anew.
  void note_broken() noexcept { go(Health::kGood, Health::kBroken); }
  bool is_usable() const noexcept { return health() == Health::kGood; }
  /// May a broken pair begin anew? `carried`: frames went by since it last began. @return false:
  /// the device is gone, or given up, at the kMaxErrors-th error in a row. May cost a system call.
  bool may_begin_anew(bool carried) noexcept;
  void note_begun() noexcept { go(Health::kBroken, Health::kGood); }
  static constexpr unsigned kMaxErrors = 5;

 private:
  enum class Health : uint8_t { kGood, kBroken, kGone };
  Health health() const noexcept { return health_.load(std::memory_order_relaxed); }
  void go(Health from, Health to) noexcept {
    health_.compare_exchange_strong(from, to, std::memory_order_relaxed);
  }
  void unsteer(uint64_t rule_id) noexcept override;
  ibv_flow* create_flow(const FlowKey& key, FlowTag tag, Queue& to);
  ibv_flow* create_flow_of_vlan(const FlowKey& key, FlowTag tag, Queue& to);
  struct Rule {
    ibv_flow* flow = nullptr;
    const Queue* to = nullptr;
  };
  void remove(uint64_t rule_id, const Rule& rule) noexcept;
  std::shared_ptr<Context> context_;
  Arena& arena_;
  VerbsOptions options_;
  QueueMaker make_;
  std::optional<std::array<uint8_t, 6>> mac_;
  std::atomic<Health> health_{Health::kGood};  ///< kGone is for ever
  unsigned errors_in_row_ = 0;                 ///< the queue's, as the calls that change it
  std::mutex lock_;
  FlowRules<Rule> rules_;
  ibv_qp* pair_ = nullptr;  ///< of the open queue
  RuleMaker make_rule_ = nullptr;
  bool has_moved_ = false;      ///< another member of a bond is the active one; the queue's
  bool refuses_vlans_ = false;  ///< it made a rule only once its VLAN was left out
};

}  // namespace vireo::verbs
