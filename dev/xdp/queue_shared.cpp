// The queue's part for several processes: what is different where the queue is shared.
#include <algorithm>
#include <ctime>
#include <utility>

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
/// A member that loses its frames (it is stopped with a full RX ring, or its program reads nothing)
/// posts none. When FILL is down to this part of what it should hold, the others help out.
constexpr uint32_t kStarving = 4;

}  // namespace

void XdpQueue::share() noexcept {
  if (rings_ == nullptr || std::exchange(is_shared_, true)) return;
  uint32_t none = 0;
  rings_->queue().fill_target.compare_exchange_strong(none, fill_most_);
}

/// Received frames are ours, whoever posted them. Follows FILL's index, for idle().
void XdpQueue::take_over(std::span<RxDesc> got) noexcept {
  for (RxDesc& d : got) {
    d.packet->next = nullptr;
    d.packet->refs = 1;
    d.packet->hw_time = 0;
  }
  const uint32_t at = xsk_.rx.consumed();
  const uint64_t expected = xsk_.fill[at + fill_ahead_];
  if (packet_at(expected).index == got.front().packet->index) return;
  // Others received in between.
  fill_ahead_ = xsk_.fill.taken() - (at + static_cast<uint32_t>(got.size()));
}

void XdpQueue::refill_shared() noexcept {
  SharedQueue& q = rings_->queue();
  const uint32_t target = q.fill_target.load(std::memory_order_relaxed);
  const auto part = static_cast<int32_t>(target / rings_->users());
  // Where members have joined, what we have above our part is theirs: they count it (below).
  rx_held_count_ = std::min(rx_held_count_, part);
  int32_t due = part - rx_held_count_;
  if (due < std::min(kPostAtOnce, part / 2)) {
    if (++lazy_refills_ % kLazy != 0) return;
    const uint32_t level = xsk_.fill.level();
    const uint32_t keep = pool_.size() / 2;
    if (level >= target / kStarving || pool_.ready_count() < keep) return;
    // Those who are stopped may take most of it.
    due = static_cast<int32_t>(std::min(target / 2 - level, pool_.ready_count() - keep));
  } else if (xsk_.fill.level() >= target) {
    // A member that is gone has left its part: it is ours now.
    rx_held_count_ += due;
    return;
  }
  // Many frames may have been received since the last call.
  auto left = static_cast<uint32_t>(std::max(due, kPostAtOnce));
  while (left != 0) {
    const uint32_t posted = post_some(std::min(left, SharedRings::kBatch));
    left -= posted;
    if (posted < SharedRings::kBatch) return;
  }
}

/// @return how many; fewer if the pool is empty, FILL full, or another member at it.
uint32_t XdpQueue::post_some(uint32_t want) noexcept {
  uint64_t addresses[SharedRings::kBatch];
  PacketBuf* taken[SharedRings::kBatch];
  uint32_t n = 0;
  for (; n < want; ++n) {
    taken[n] = pool_.take_for_rx();
    if (taken[n] == nullptr) break;
    addresses[n] = address_of(*taken[n], 0);
  }
  if (n == 0) return 0;
  const uint32_t posted = rings_->post(xsk_.fill, xsk_.completion, {addresses, n});
  for (uint32_t i = posted; i < n; ++i) PacketPool::drop(taken[i]);
  rx_held_count_ += static_cast<int32_t>(posted);
  if (posted != 0) wake_fill();
  return posted;
}

unsigned XdpQueue::reap_shared() noexcept {
  const auto take = [this] {
    return rings_->take_returns([this](uint32_t frame) { complete(pool_.at(frame)); });
  };
  unsigned n = take();
  in_flight_ -= n;
  const bool is_worth = in_flight_ >= kReapFrom || kick_due_ || ++lazy_reaps_ % kLazy == 0;
  if (in_flight_ == 0 || !is_worth || xsk_.completion.level() == 0) return n;
  if (!rings_->distribute(xsk_.fill, xsk_.completion)) return n;
  const unsigned more = take();
  in_flight_ -= more;
  return n + more;
}

/// Before a sleep: nothing that can be done now waits for the next frame.
void XdpQueue::settle_shared() noexcept {
  lazy_reaps_ = lazy_refills_ = kLazy - 1;
  reap_shared();
  refill_shared();
}

/// At the end, while others go on. What the kernel still has after that comes back to them.
void XdpQueue::leave_shared() noexcept {
  constexpr int kTries = 20;
  constexpr timespec kPause{0, 500'000};
  for (int tries = 0; tries < kTries && in_flight_ != 0; ++tries) {
    lazy_reaps_ = kLazy - 1;
    if (reap_shared() == 0) sys(SYS_nanosleep, reinterpret_cast<long>(&kPause));
  }
  // No frame is on its way to our RX ring any more: its entry in the steering program is gone.
  wait_for_softirqs();
  RxDesc d;
  while (rx_burst({&d, 1}) != 0) d.packet.reset();
}

}  // namespace vireo::xdp
