// The FILL and COMPLETION rings of a queue that several processes share: entries are posted and
// taken in batches under a lock in shared memory. Nobody waits for the lock: if it is taken, the
// next call does the work. If its holder dies in it, the next one repairs what he left.
// Owner: an XdpQueue. Thread: as the queue.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/clock.h"
#include "core/frame_owners.h"
#include "dev/xdp/group/shared_queue.h"
#include "dev/xdp/ring.h"

namespace vireo::xdp {

class SharedRings {
 public:
  /// Most entries that one call moves.
  static constexpr uint32_t kBatch = 64;

  struct Setup {
    SharedQueue* queue = nullptr;
    unsigned number = 0;  ///< of the queue
    unsigned slot = 0;
    FrameOwners owners;
    uint32_t frame_shift = 11;
    std::function<bool(unsigned slot)> is_alive;
  };
  explicit SharedRings(Setup setup) : s_(std::move(setup)) {}

  unsigned number() const { return s_.number; }
  SharedQueue& queue() const { return *s_.queue; }
  ReturnRing& own_returns() const { return s_.queue->returns[s_.slot]; }

  /// Number of members that use the queue, at least 1.
  unsigned users() const noexcept;

  /// Posts the frames at these addresses, as many as the ring has room for. @return how many: from
  /// then on they are the queue's; 0: the ring is full, or another member is at it.
  uint32_t post(ProducerRing<uint64_t>& fill, ConsumerRing<uint64_t>& completion,
                std::span<const uint64_t> addresses) noexcept;

  /// Gives up to kBatch completions to the owners' return rings. @return false: another member is
  /// at it.
  bool distribute(ProducerRing<uint64_t>& fill, ConsumerRing<uint64_t>& completion) noexcept;

  /// Waits for the lock, and repairs what a dead holder left. @return false: its holder lives and
  /// keeps it for longer than `patience`.
  bool hold(ProducerRing<uint64_t>& fill, ConsumerRing<uint64_t>& completion,
            Duration patience) noexcept;
  void release() noexcept { s_.queue->lock.unlock(); }
  /// post() and distribute() by the holder of the lock. @return how many.
  uint32_t post_held(ProducerRing<uint64_t>& fill, std::span<const uint64_t> addresses) noexcept;
  uint32_t distribute_held(ConsumerRing<uint64_t>& completion) noexcept;

  /// The right to send, on kernels where members must not send at once. @return false: another one
  /// is sending.
  bool try_sending() noexcept {
    if (s_.queue->sending.try_lock(s_.slot)) return true;
    return s_.queue->sending.try_lock(s_.slot, sending_wait_, Clock::now(), s_.is_alive) !=
           SharedLock::Took::kNo;
  }
  void end_sending() noexcept { s_.queue->sending.unlock(); }

  /// Calls `each(frame)` for every frame that came back to us.
  template <class F>
  unsigned take_returns(F&& each) noexcept {
    ReturnRing& r = own_returns();
    // Pairs with the release in store_tails().
    const uint32_t tail = r.tail.load(std::memory_order_acquire);
    uint32_t head = r.head.load(std::memory_order_relaxed);
    const uint32_t n = tail - head;
    while (head != tail) {
      const uint32_t frame = r.frames[head % ReturnRing::kEntries];
      // One by one, and noted before: if we die between, the frame counts as in flight for ever.
      // The other way round, two would own it.
      r.head.store(++head, std::memory_order_release);
      each(frame);
    }
    return n;
  }

 private:
  uint32_t frame_of(uint64_t address) const {
    return static_cast<uint32_t>(address >> s_.frame_shift);
  }
  bool enter(ProducerRing<uint64_t>& fill, ConsumerRing<uint64_t>& completion) noexcept;
  bool begin(SharedLock::Took took, ProducerRing<uint64_t>& fill,
             ConsumerRing<uint64_t>& completion) noexcept;
  void repair(ProducerRing<uint64_t>& fill, ConsumerRing<uint64_t>& completion) noexcept;
  void store_tails(ConsumerRing<uint64_t>& completion) noexcept;
  void release_gone(uint32_t frame) noexcept;

  Setup s_;
  SharedLockWait wait_, sending_wait_;
};

}  // namespace vireo::xdp
