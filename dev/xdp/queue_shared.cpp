// The queue's part for several processes: what is different where the queue is shared.
#include <algorithm>
#include <ctime>
#include <utility>

#include "dev/xdp/group/sharing.h"
#include "dev/xdp/kernel_version.h"
#include "dev/xdp/queue.h"
#include "dev/xdp/softirqs.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

/// Frames that are posted together, so that the lock is taken once for them.
constexpr int32_t kPostAtOnce = 64;
/// Frames in flight from which a reap looks into COMPLETION; with fewer, one reap in kLazy does.
constexpr uint32_t kReapFrom = 32;
constexpr uint32_t kLazy = 64;
/// Part of the pool that may be posted on one queue.
constexpr uint32_t kPostable = 4;
/// Frames that are given back at a time where they are short.
constexpr uint32_t kGivenAtOnce = 1024;
constexpr Duration kTopUpEvery = Duration::ms(100);
/// From Linux 6.6 to 6.17 a sender that gives up takes back COMPLETION's last entry, which may be
/// another socket's: there members send in turn.
bool sends_in_turn() noexcept { return kernel_version() >= 6006 && kernel_version() < 6018; }

}  // namespace

void XdpQueue::share() noexcept {
  if (shared_.rings == nullptr || std::exchange(shared_.is_on, true)) return;
  uint32_t none = 0;
  // Of others' bursts nobody knows before: FILL is kept full.
  const uint32_t target = std::min(xsk_.fill.size(), pool_.size() / 2);
  shared_.rings->queue().fill_target.compare_exchange_strong(none, target);
}

/// Whether the first descriptors are frames of this queue. Before Linux 6.15 two processors may
/// give one frame to two sockets in generic mode: the second one drops it. @return how many are.
unsigned XdpQueue::claim(unsigned n) noexcept {
  for (unsigned i = 0; i < n; ++i) {
    uint8_t queued = in_queue_;
    std::atomic_ref owner(frames_.owner[packet_at(xsk_.rx.front(i).addr).index]);
    if (owner.compare_exchange_strong(queued, frames_.me, std::memory_order_relaxed)) [[likely]]
      continue;
    if (i == 0) xsk_.rx.release(1);
    return i;
  }
  return n;
}

/// Received frames are ours, whoever posted them. Follows FILL's index, for idle().
void XdpQueue::take_over(std::span<RxDesc> got) noexcept {
  for (RxDesc& d : got) {
    d.packet->next = nullptr;
    d.packet->pool = &pool_;
    d.packet->refs = 1;
    d.packet->hw_time = 0;
  }
  const uint32_t at = xsk_.rx.consumed();
  const uint64_t expected = xsk_.fill[at + shared_.fill_ahead];
  if (packet_at(expected).index == got.front().packet->index) return;
  // Others received in between.
  shared_.fill_ahead = xsk_.fill.taken() - (at + static_cast<uint32_t>(got.size()));
}

/// Each member has its part of the frames that FILL should hold, and posts as many as it receives.
void XdpQueue::refill_shared() noexcept {
  const uint32_t target = shared_.rings->queue().fill_target.load(std::memory_order_relaxed);
  const auto part =
      static_cast<int32_t>(std::min(target / shared_.rings->users(), pool_.size() / kPostable));
  // Where members have joined, what we have above our part is theirs: they count it (below).
  rx_held_count_ = std::min(rx_held_count_, part);
  const int32_t more = ++shared_.refills % kLazy == 0 ? follow_level(target, part) : 0;
  const int32_t due = std::max(part - rx_held_count_, more);
  if (due < std::min(kPostAtOnce, std::max(part / 2, 1))) return;
  if (xsk_.fill.level() >= target) {
    // A member that is gone has left its part: it is ours now.
    rx_held_count_ += due;
    return;
  }
  // Many frames may have been received since the last call.
  for (auto left = static_cast<uint32_t>(due); left != 0;) {
    const uint32_t want = std::min(left, SharedRings::kBatch);
    if (post_frames(want) < want) return;
    left -= want;
  }
}

/// Posts at most SharedRings::kBatch. @return how many; fewer if the pool is empty, FILL full, or
/// another member at it.
uint32_t XdpQueue::post_frames(uint32_t want) noexcept {
  uint64_t addresses[SharedRings::kBatch];
  PacketBuf* taken[SharedRings::kBatch];
  uint32_t n = 0;
  for (; n < want; ++n) {
    taken[n] = take_empty();
    if (taken[n] == nullptr) break;
    addresses[n] = address_of(*taken[n], 0);
  }
  if (n == 0) return 0;
  const uint32_t posted = shared_.rings->post(xsk_.fill, xsk_.completion, {addresses, n});
  for (uint32_t i = posted; i < n; ++i) PacketPool::drop(taken[i]);
  rx_held_count_ += static_cast<int32_t>(posted);
  if (posted != 0) wake_fill();
  return posted;
}

/// Frames are missing where a member does not post its part: it is stopped with a full RX ring, its
/// program reads nothing, or it died. Then what the others have posted counts as what is there; if
/// hardly any are left, who has frames to spare posts more than its part. @return how many.
/// Where our pool has lost frames that way, those that nobody has replace them.
int32_t XdpQueue::follow_level(uint32_t target, int32_t part) noexcept {
  const uint32_t level = xsk_.fill.level();
  if (level < target / 2)
    rx_held_count_ =
        std::min(rx_held_count_,
                 static_cast<int32_t>(uint64_t{level} * static_cast<uint32_t>(part) / target));
  if (pool_.ready_count() < pool_.size() / 8 * 7) {
    const Instant now = Clock::now();
    if (now - shared_.topped_up >= kTopUpEvery) {
      shared_.topped_up = now;
      shared_.sharing->top_up(pool_, static_cast<uint32_t>(std::max(rx_held_count_, 0)));
    }
  }
  give_back(static_cast<uint32_t>(part));
  const uint32_t kept = pool_.size() / 2;
  if (level >= target / 4 || pool_.ready_count() <= kept) return 0;
  return static_cast<int32_t>(std::min(target / 2 - level, pool_.ready_count() - kept));
}

/// What members brought and left in FILL comes to those who stay. Frames above our quota are
/// nobody's again: processes that join get theirs from these.
void XdpQueue::give_back(uint32_t part) noexcept {
  const uint32_t ready = pool_.ready_count();
  const uint32_t quota = shared_.sharing->quota(pool_.size());
  const uint32_t keep = quota - std::min(part, quota / 2);
  const uint32_t most = quota < pool_.size() ? kGivenAtOnce : SharedRings::kBatch;
  for (uint32_t n = std::min(ready - std::min(ready, keep), most); n > 0; --n) {
    PacketBuf* const p = pool_.take();
    if (p == nullptr) return;
    p->refs = 0;
    p->pool = nullptr;
    // From then on a process that joins may write it.
    std::atomic_ref(frames_.owner[p->index]).store(FrameOwners::kNobody, std::memory_order_release);
  }
}

bool XdpQueue::try_sending() noexcept { return !sends_in_turn() || shared_.rings->try_sending(); }

void XdpQueue::end_sending() noexcept {
  if (sends_in_turn()) shared_.rings->end_sending();
}

unsigned XdpQueue::reap_shared() noexcept {
  unsigned n = 0;
  const auto take = [&] {
    shared_.rings->take_returns([&](uint32_t frame) {
      if (own_in_flight_[frame] == 0) [[unlikely]]
        return;  // of an earlier use of the queue
      complete(pool_.at(frame));
      ++n;
    });
  };
  take();
  const bool is_worth = in_flight_ - n >= kReapFrom || kick_due_ || ++shared_.reaps % kLazy == 0;
  // Others' too: a member that only receives clears what a dead one has sent.
  if (is_worth && xsk_.completion.level() != 0 &&
      shared_.rings->distribute(xsk_.fill, xsk_.completion))
    take();
  in_flight_ -= n;
  return n;
}

/// Before a sleep: nothing that can be done now waits for the next frame.
void XdpQueue::settle_shared() noexcept {
  shared_.reaps = shared_.refills = kLazy - 1;
  reap_shared();
  refill_shared();
}

/// At the end, while others go on. What the kernel still has after that comes back to them.
void XdpQueue::leave_shared() noexcept {
  constexpr int kTries = 20;
  constexpr timespec kPause{0, 500'000};
  for (int tries = 0; tries < kTries && in_flight_ != 0; ++tries) {
    shared_.reaps = kLazy - 1;
    if (reap_shared() == 0) sys(SYS_nanosleep, reinterpret_cast<long>(&kPause));
  }
  // No frame is on its way to our RX ring any more: its entry in the steering program is gone.
  wait_for_softirqs();
  RxDesc d;
  while (rx_burst({&d, 1}) != 0) d.packet.reset();
}

}  // namespace vireo::xdp
