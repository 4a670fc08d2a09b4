#include "dev/xdp/group/shared_rings.h"

#include <bit>

namespace vireo::xdp {

unsigned SharedRings::users() const noexcept {
  return static_cast<unsigned>(
      std::max(std::popcount(s_.queue->users.load(std::memory_order_relaxed)), 1));
}

/// Takes the lock if it is free, and brings the rings' indices up to date.
bool SharedRings::enter(ProducerRing<uint64_t>& fill, ConsumerRing<uint64_t>& completion) noexcept {
  auto took = SharedLock::Took::kYes;
  if (!s_.queue->lock.try_lock(s_.slot)) [[unlikely]]
    took = s_.queue->lock.try_lock(s_.slot, wait_, Clock::now(), s_.is_alive);
  return begin(took, fill, completion);
}

bool SharedRings::hold(ProducerRing<uint64_t>& fill, ConsumerRing<uint64_t>& completion,
                       Duration patience) noexcept {
  SharedLockWait wait;
  return begin(s_.queue->lock.lock(s_.slot, wait, patience, s_.is_alive), fill, completion);
}

bool SharedRings::begin(SharedLock::Took took, ProducerRing<uint64_t>& fill,
                        ConsumerRing<uint64_t>& completion) noexcept {
  if (took == SharedLock::Took::kNo) return false;
  fill.rejoin();
  completion.rejoin();
  if (took == SharedLock::Took::kFromDead) [[unlikely]]
    repair(fill, completion);
  return true;
}

/// Finishes or undoes what a holder had begun when he died.
void SharedRings::repair(ProducerRing<uint64_t>& fill,
                         ConsumerRing<uint64_t>& completion) noexcept {
  SharedQueue& q = *s_.queue;
  if (q.filling.count != 0) {
    if (fill.produced() == q.filling.at)
      for (uint32_t i = 0; i < q.filling.count; ++i)
        s_.owners.owner[frame_of(fill.slot(i))] = FrameOwners::kNobody;
    q.filling.count = 0;
  }
  if (q.completing.is_valid != 0) {
    completion.rejoin();
    store_tails(completion);
  }
}

uint32_t SharedRings::post(ProducerRing<uint64_t>& fill, ConsumerRing<uint64_t>& completion,
                           std::span<const uint64_t> addresses) noexcept {
  if (!enter(fill, completion)) return 0;
  const uint32_t n = post_held(fill, addresses);
  release();
  return n;
}

uint32_t SharedRings::post_held(ProducerRing<uint64_t>& fill,
                                std::span<const uint64_t> addresses) noexcept {
  SharedQueue& q = *s_.queue;
  const uint32_t n =
      std::min(static_cast<uint32_t>(addresses.size()), fill.size() - fill.waiting());
  for (uint32_t i = 0; i < n; ++i) fill.slot(i) = addresses[i];
  q.filling.at = fill.produced();
  // The order on which who repairs it relies: entries, note, owners, producer. The fences are for
  // the compiler: after a kill, what was stored is seen.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref(q.filling.count).store(n, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  for (uint32_t i = 0; i < n; ++i)
    s_.owners.owner[frame_of(addresses[i])] = FrameOwners::of_queue(s_.number);
  fill.publish(n);
  std::atomic_ref(q.filling.count).store(0, std::memory_order_release);
  return n;
}

bool SharedRings::distribute(ProducerRing<uint64_t>& fill,
                             ConsumerRing<uint64_t>& completion) noexcept {
  if (!enter(fill, completion)) return false;
  distribute_held(completion);
  release();
  return true;
}

uint32_t SharedRings::distribute_held(ConsumerRing<uint64_t>& completion) noexcept {
  SharedQueue& q = *s_.queue;
  uint32_t n = std::min(completion.ready_now(), kBatch);
  uint32_t gone[kBatch];
  uint32_t gone_count = 0;
  uint64_t touched = 0;
  uint32_t tails[kGroupSlots];
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t frame = frame_of(completion.front(i));
    const uint8_t owner = s_.owners.owner[frame];
    if (owner == FrameOwners::kGone) {
      gone[gone_count++] = frame;
      continue;
    }
    const unsigned slot = unsigned{owner} - 1;
    if (slot >= kGroupSlots)
      continue;  // of one that died between the two: SharedMemory::take_back()
    ReturnRing& r = q.returns[slot];
    if ((touched >> slot & 1) == 0) {
      touched |= uint64_t{1} << slot;
      tails[slot] = r.tail.load(std::memory_order_relaxed);
    }
    r.frames[tails[slot]++ % ReturnRing::kEntries] = frame;
  }
  if (n != 0) {
    for (uint64_t left = touched; left != 0; left &= left - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(left));
      q.completing.tails[slot] = tails[slot];
    }
    q.completing.touched = touched;
    q.completing.consumer = completion.consumed() + n;
    std::atomic_ref(q.completing.is_valid).store(1, std::memory_order_release);
    store_tails(completion);
  }
  for (uint32_t i = 0; i < gone_count; ++i) release_gone(gone[i]);
  return n;
}

/// Carries out what is noted in `completing`.
void SharedRings::store_tails(ConsumerRing<uint64_t>& completion) noexcept {
  SharedQueue& q = *s_.queue;
  for (uint64_t left = q.completing.touched; left != 0; left &= left - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(left));
    // Pairs with the acquire in take_returns().
    q.returns[slot].tail.store(q.completing.tails[slot], std::memory_order_release);
  }
  completion.release(q.completing.consumer - completion.consumed());
  std::atomic_ref(q.completing.is_valid).store(0, std::memory_order_release);
}

/// A frame whose owner is gone came back. It may come back on several queues at once.
void SharedRings::release_gone(uint32_t frame) noexcept {
  std::atomic_ref in_flight(s_.owners.in_flight[frame]);
  uint16_t n = in_flight.load(std::memory_order_relaxed);
  while (n != 0 && !in_flight.compare_exchange_weak(n, static_cast<uint16_t>(n - 1))) {
  }
  if (n > 1) return;
  uint8_t gone = FrameOwners::kGone;
  std::atomic_ref(s_.owners.owner[frame]).compare_exchange_strong(gone, FrameOwners::kNobody);
}

}  // namespace vireo::xdp
