#include "dev/mlx5/runs.h"

namespace vireo::mlx5 {

bool Runs::borrow(uint32_t wanted) {
  const auto lent = static_cast<uint32_t>(lent_.size());
  // To look for a run is work: not again until there is more to be found.
  if (lent == most_ || pool_.rx_count() < tried_at_ + frames()) return false;
  const uint32_t n = std::min(most_ - lent, std::max(wanted, lent / 4));
  lent_.resize(lent + n);
  const uint32_t found = pool_.lend(frames(), std::span(lent_).subspan(lent), back_);
  lent_.resize(lent + found);
  tried_at_ = found > 0 ? 0 : pool_.rx_count();
  for (const uint32_t first : std::span(lent_).subspan(lent)) whole_.push_back(first >> shift_);
  return found > 0;
}

}  // namespace vireo::mlx5
