#include "dev/xdp/group/dead_rings.h"

#include <utility>

namespace vireo::xdp {

Result<DeadRings> DeadRings::map(const Which& which, int rx_fd, int tx_fd,
                                 SharedRings::Setup ours) {
  auto view =
      XskView::map(rx_fd, tx_fd, which.sizes,
                   {.tx = which.queue->completion_entries, .fill = which.queue->fill_entries});
  if (!view) return std::unexpected(view.error());
  DeadRings d;
  d.which_ = which;
  d.owners_ = ours.owners;
  d.frame_shift_ = ours.frame_shift;
  d.view_ = std::move(*view);
  d.rings_ = std::make_unique<SharedRings>(std::move(ours));
  return d;
}

void DeadRings::empty() noexcept {
  view_.rx.rejoin();
  while (view_.rx.ready_now() != 0) {
    const uint64_t frame = view_.rx.front(0).addr >> frame_shift_;
    uint8_t& owner = owners_.owner[frame];
    view_.rx.release(1);
    if (owner != FrameOwners::of_queue(which_.number)) continue;  // he had it: take_back()
    const uint64_t address = frame << frame_shift_;
    if (rings_->post_held(view_.fill, {&address, 1}) == 0) owner = FrameOwners::kNobody;
  }
  const auto returned = [&](uint64_t frame) {
    uint16_t& in_flight = owners_.in_flight[frame];
    if (in_flight > 0) --in_flight;
  };
  // A driver in zero-copy mode takes the rest of the TX ring by itself, and they come back.
  view_.tx.rejoin();
  while (which_.queue->is_zero_copy == 0 && view_.tx.waiting() != 0) {
    view_.tx.unpublish(1);
    returned(view_.tx.slot(0).addr >> frame_shift_);
  }
  // What has been sent, ours and others'. Frames that come later find their owner gone.
  while (rings_->distribute_held(view_.completion) != 0) {
  }
  ReturnRing& r = which_.queue->returns[which_.slot];
  for (uint32_t head = r.head.load(); head != r.tail.load();) {
    const uint32_t frame = r.frames[head % ReturnRing::kEntries];
    r.head.store(++head);
    returned(frame);
  }
}

}  // namespace vireo::xdp
