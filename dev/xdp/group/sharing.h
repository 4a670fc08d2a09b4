// A process as member of the group that shares its interfaces: packet memory, steering program and
// queues of all members, and what a member that died has left.
//
// The group's memory is fixed when it is founded. A member has the frames that were granted to it,
// and those that it receives (shared_memory.h); it gives all back when it leaves, and half of them
// when few are left for processes that join.
// Owner: the process, one at most. Thread: any, guarded by the group's control lock; setup only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/arena.h"
#include "core/packet.h"
#include "core/result.h"
#include "core/types.h"
#include "dev/device_group.h"
#include "dev/xdp/copied.h"
#include "dev/xdp/group/group.h"
#include "dev/xdp/group/shared_memory.h"
#include "dev/xdp/group/shared_rings.h"
#include "dev/xdp/steer.h"
#include "dev/xdp/xdp_group.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {

class Sharing final : public DeviceGroup {
 public:
  /// Fewest frames to work with.
  static constexpr uint32_t kMinFrames = 1024;

  /// Enters the group of this user and network namespace. Errors: those of Group::enter(); ENOMEM
  /// the group's packet memory is used up, or there is none.
  static Result<std::shared_ptr<Sharing>> enter(const XdpGroupOptions& options);
  /// Of the process; null: none.
  static std::shared_ptr<Sharing> of(const Arena& arena);
  ~Sharing() override;

  // ---- DeviceGroup
  Arena take_arena() noexcept override { return std::move(arena_); }
  FlowHashKey secret() const noexcept override { return group_->secret(); }
  int fd() const noexcept override { return group_->fd(); }
  bool is_alone() const noexcept override { return is_alone_; }
  void end_solitude() noexcept override { is_alone_ = false; }
  bool serve() noexcept override { return group_->serve(); }
  Duration tend(Instant now) noexcept override;
  int filter_of_copied() noexcept override;
  bool has_program(uint32_t number) const noexcept override;
  void write_stats(GroupStats& to) const noexcept override;
  void retire() noexcept override;

  unsigned slot() const { return group_->slot(); }
  bool is_alive(unsigned slot) const noexcept { return group_->is_alive(slot); }

  // ---- for devices
  /// Loaded at the first call. Errors: those of CopiedFrames::load().
  Result<CopiedFrames*> copied() noexcept;
  using Control = Group::Control;
  Result<Control> control();
  /// An interface as its first member opened it.
  struct OpenInterface {
    std::shared_ptr<Steering> steering;
    uint32_t how = 0;  ///< of the caller's making
  };
  /// An interface that a member has open; no steering: none has.
  Result<OpenInterface> find(const Control&, IfIndex ifindex);
  Result<void> publish(const Control&, IfIndex ifindex, uint32_t how,
                       const std::shared_ptr<Steering>& steering);
  /// Of our slot, for what a process loads itself.
  SteeringMember member();
  void leave(IfIndex ifindex) noexcept;

  /// Opens queue `id`: beside those who use it, else by `first`.
  struct QueueShape {
    RingSizes sizes;
    uint32_t chunk_bytes = 0;
    bool multi_frame = false;
  };
  struct OpenQueue {
    Xsk xsk;
    std::unique_ptr<SharedRings> rings;
    bool is_shared = false;  ///< others may use it
    bool multi_frame = false;
  };
  Result<OpenQueue> open_queue(IfIndex ifindex, QueueId id, const QueueShape& shape,
                               const std::function<Result<Xsk>()>& first);
  /// After its own sockets are closed. `return_frames` is called when the kernel has closed them.
  /// What is left in the rings is the others', or nobody's.
  void close_queue(unsigned number, const std::function<void()>& return_frames) noexcept;
  /// How many frames a member may have now to which `granted` were granted. Any thread.
  uint32_t quota(uint32_t granted) const noexcept {
    return is_short_.load(std::memory_order_relaxed) ? std::max(granted / 2, kMinFrames) : granted;
  }
  /// Gives `pool` frames that nobody has, if it has fewer than its quota, of which `posted` are in
  /// FILL. Holder of the engine's lock.
  void top_up(PacketPool& pool, uint32_t posted) noexcept;

 private:
  enum class Kind : uint32_t { kPackets, kInterface, kQueue };
  static constexpr unsigned kAnySlot = ~0U;
  static constexpr unsigned kAnyQueue = ~0U;
  static constexpr uint32_t kAnyInterface = 0;

  Sharing(std::unique_ptr<Group> group, SharedMemory memory)
      : group_(std::move(group)), memory_(std::move(memory)) {}
  Result<void> take_memory(const Control&, const XdpGroupOptions& options);
  void look_at_memory() noexcept;
  Result<std::shared_ptr<Steering>> join(std::span<UniqueFd> fds);
  SharedRings::Setup rings_setup(unsigned number);
  static Bank::Which is_interface(uint32_t ifindex);
  static Bank::Which is_queue(unsigned number, unsigned slot = kAnySlot);
  void leave_queue(unsigned number, unsigned slot) noexcept;
  void leave_interfaces(const Control& control, unsigned slot, uint32_t ifindex) noexcept;
  bool bury(const Control& control, unsigned slot) noexcept;
  void free_locks_of(unsigned slot, SharedQueue& q) noexcept;
  static uint32_t sizes_to_word(const RingSizes& s);
  static RingSizes sizes_of_word(uint32_t word);

  struct Open {
    IfIndex ifindex;
    std::weak_ptr<Steering> steering;
  };

  std::unique_ptr<Group> group_;
  SharedMemory memory_;
  Arena arena_;
  const std::byte* base_ = nullptr;
  std::atomic<bool> is_alone_{false};  ///< written with the engine's lock
  std::atomic<bool> is_short_{false};  ///< few frames are left that nobody has
  Instant tended_{};
  std::vector<Open> open_;  ///< interfaces
  std::mutex copied_lock_;
  std::optional<Result<CopiedFrames>> copied_;  ///< nothing: not tried yet
};

}  // namespace vireo::xdp
