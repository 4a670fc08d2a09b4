// An RDMA port as the contract's Device. Private to dev/verbs and dev/mlx5.
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

/// Creates a queue-specific rule. Null: refused; ibv_create_flow(3) is tried instead.
using RuleMaker = ibv_flow* (*)(Queue& to, const FlowKey& key,
                                const std::optional<std::array<uint8_t, 6>>& mac, FlowTag tag);
/// A queue that is ready, and the QP to which rules steer its frames.
struct OpenedQueue {
  std::unique_ptr<Queue> queue;
  ibv_qp* pair;
  RuleMaker make_rule = nullptr;  ///< for TCP
};
/// Creates the queue of a device; corrects `caps` to what was granted.
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

  /// The queue closes: removes its rules and lets another one be opened.
  void close(const Queue& queue) noexcept;
  /// Called when the queue drives the rings itself; `tags`: completions carry rule tags.
  void set_kind(DeviceKind kind, const char* mode, bool tags);
  /// Reads pending device events. @return false: the device is gone. May cost a system call.
  bool is_there() noexcept;
  /// A queue saw an error that only a dead device causes.
  void note_gone() noexcept { health_.store(Health::kGone, std::memory_order_relaxed); }
  /// The last result of is_there().
  bool is_gone() const noexcept { return health() == Health::kGone; }

  /// The QP entered the error state (by a CQE or an event): nothing is posted until its queue has
  /// restarted.
  void note_broken() noexcept { go(Health::kGood, Health::kBroken); }
  bool is_usable() const noexcept { return health() == Health::kGood; }
  /// Whether a broken QP may restart. `carried`: frames passed since its last start. @return false:
  /// the device is gone, or was given up at the kMaxErrors-th error in a row. May cost a system
  /// call.
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
  std::atomic<Health> health_{Health::kGood};  ///< kGone is final
  unsigned errors_in_row_ = 0;                 ///< guarded like the queue that changes it
  std::mutex lock_;
  FlowRules<Rule> rules_;
  ibv_qp* pair_ = nullptr;  ///< the open queue's
  RuleMaker make_rule_ = nullptr;
  bool has_moved_ = false;      ///< the bond's active member changed; written by the queue
  bool refuses_vlans_ = false;  ///< a rule was granted only without its VLAN
};

}  // namespace vireo::verbs
