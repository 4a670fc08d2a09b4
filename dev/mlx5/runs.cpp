#include "dev/mlx5/runs.h"

namespace vireo::mlx5 {

Runs::~Runs() {
  for (const uint32_t first : std::exchange(spare_.firsts, {})) {
    pool_.note_used(spare_);
    pool_.take_back(frames(), first);
  }
  for (uint32_t run = 0; run < missing_.size(); ++run)
    if (missing_[run] != 0) pool_.take_back(frames(), run << shift_);
  pool_.leave(spare_);
}

bool Runs::borrow(uint32_t wanted) {
  // Searching for a run is expensive: not again until the pool has more frames.
  if (used_ == most_ || pool_.rx_count() < tried_at_ + frames()) return false;
  const uint32_t n = std::min(most_ - used_, std::max(wanted, used_ / 4));
  spare_.firsts.resize(n);
  const uint32_t found = pool_.lend(frames(), spare_.firsts, back_);
  spare_.firsts.resize(found);
  tried_at_ = found > 0 ? 0 : pool_.rx_count();
  for (uint32_t i = 0; i < found; ++i) pool_.note_spare(spare_);
  return found > 0;
}

}  // namespace vireo::mlx5
