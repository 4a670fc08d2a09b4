#include "dev/xdp/group/dead_rings.h"

#include <utility>

namespace vireo::xdp {

Result<DeadRings> DeadRings::map(const Which& which, int rx_fd, int tx_fd,
                                 SharedRings::Setup ours) {
  auto view =
      XskView::map(rx_fd, tx_fd, which.sizes,
                   {.rx = which.queue->fill_entries, .tx = which.queue->completion_entries});
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
    view_.rx.release(1);  // first: if we die, the frame is lost, not in two places
    if (owner != FrameOwners::of_queue(which_.number)) continue;
    if (view_.fill.waiting() < view_.fill.size()) {
      view_.fill.slot(0) = frame << frame_shift_;
      view_.fill.publish(1);
    } else {
      owner = FrameOwners::kNobody;
    }
  }
  const auto sent = [&](uint64_t frame) {
    uint16_t& in_flight = owners_.in_flight[frame];
    if (in_flight > 0) --in_flight;
  };
  view_.tx.rejoin();
  while (view_.tx.waiting() != 0) {
    view_.tx.unpublish(1);
    sent(view_.tx.slot(0).addr >> frame_shift_);
  }
  ReturnRing& r = which_.queue->returns[which_.slot];
  for (uint32_t head = r.head.load(); head != r.tail.load();) {
    sent(r.frames[head % ReturnRing::kEntries]);
    r.head.store(++head);
  }
}

}  // namespace vireo::xdp
