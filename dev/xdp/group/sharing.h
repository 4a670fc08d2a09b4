// A process as member of the group that shares its interfaces: packet memory, steering program and
// queues of all members, and what a member that died has left.
//
// The group's memory is fixed when it is founded. A member has the frames that were granted to it,
// and those that it receives (shared_memory.h); it gives all back when it leaves.
// Owner: the process, one at most. Thread: any, guarded by the group's control lock; setup only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/arena.h"
#include "core/result.h"
#include "core/types.h"
#include "dev/xdp/group/group.h"
#include "dev/xdp/group/shared_memory.h"
#include "dev/xdp/group/shared_rings.h"
#include "dev/xdp/steer.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {

class Sharing {
 public:
  struct Options {
    size_t group_bytes = 0;  ///< packet memory of a new group
    size_t most_bytes = 0;   ///< of it, for this process
    uint32_t frame_bytes = 2048;
    bool huge_pages = false;
  };
  /// Fewest frames to work with.
  static constexpr uint32_t kMinFrames = 1024;

  /// Enters the group of this user and network namespace. Errors: those of Group::enter(); ENOMEM
  /// the group's packet memory is used up, or there is none.
  static Result<std::shared_ptr<Sharing>> enter(const Options& options);
  /// Of the process; null: none.
  static std::shared_ptr<Sharing> of(const Arena& arena);
  ~Sharing();

  /// The packet memory. Once.
  Arena take_arena() { return std::move(arena_); }
  unsigned slot() const { return group_->slot(); }
  bool is_alive(unsigned slot) const noexcept { return group_->is_alive(slot); }
  Group& group() { return *group_; }

  /// Readable when a process wants to join: then call serve(). Before the first call the caller
  /// tells its queues that they are shared.
  int fd() const { return group_->fd(); }
  void serve() noexcept { (void)group_->serve(); }
  /// Takes back what dead members had. Call it about once a second.
  void tend() noexcept;

  // ---- for devices
  using Control = Group::Control;
  Result<Control> control();
  /// An interface as its first member opened it.
  struct OpenInterface {
    std::shared_ptr<Steering> steering;
    uint32_t how = 0;  ///< of the caller's making
  };
  /// An interface that a member has open; no steering: none has.
  Result<OpenInterface> find(const Control&, IfIndex ifindex, uint32_t queues, bool tags);
  Result<void> publish(const Control&, IfIndex ifindex, uint32_t how, const Steering& steering);
  void leave(IfIndex ifindex) noexcept;

  /// Opens queue `id`: beside those who use it, else by `first`.
  struct QueueShape {
    RingSizes sizes;
    uint32_t chunk_bytes = 0;
    bool multi_frame = false;
  };
  /// Withdraw it with close_queue() when its sockets are closed.
  struct OpenQueue {
    Xsk xsk;
    std::unique_ptr<SharedRings> rings;
    bool is_shared = false;  ///< others use it
    bool multi_frame = false;
  };
  Result<OpenQueue> open_queue(IfIndex ifindex, QueueId id, const QueueShape& shape,
                               const std::function<Result<Xsk>()>& first);
  void close_queue(unsigned number) noexcept;

 private:
  enum class Kind : uint32_t { kPackets, kInterface, kQueue };
  static constexpr unsigned kAnySlot = ~0U;
  static constexpr unsigned kAnyQueue = ~0U;

  Sharing(std::unique_ptr<Group> group, SharedMemory memory)
      : group_(std::move(group)), memory_(std::move(memory)) {}
  Result<void> take_memory(const Control&, const Options& options);
  SharedRings::Setup rings_setup(unsigned number);
  static Bank::Which is_queue(unsigned number, unsigned slot = kAnySlot);
  void leave_queue(unsigned number, unsigned slot) noexcept;
  void leave_interfaces(const Control& control, unsigned slot, uint32_t ifindex) noexcept;
  bool bury(const Control& control, unsigned slot) noexcept;
  void release_gone() noexcept;
  static uint32_t sizes_to_word(const RingSizes& s);
  static RingSizes sizes_of_word(uint32_t word);

  std::unique_ptr<Group> group_;
  SharedMemory memory_;
  Arena arena_;
  const std::byte* base_ = nullptr;
  std::vector<uint32_t> gone_;  ///< frames whose owner was gone at `gone_since_`
  Instant gone_since_{};
};

}  // namespace vireo::xdp
