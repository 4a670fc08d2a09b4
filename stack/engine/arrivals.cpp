// When frames arrived: one look at the clock for each burst, while a socket asks for it.
#include <cstdint>

#include "stack/engine/hub.h"

namespace vireo {

void Receive::count_askers(int change) noexcept {
  const bool noted = notes_arrivals();
  askers_ += static_cast<uint32_t>(change);
  if (notes_arrivals() == noted) return;
  asked_since_ = noted ? INT64_MAX : Clock::wall_ns();
  hub().ports.choose_only();
}

void Receive::note_arrivals(unsigned n) noexcept {
  if (n == 0) return;
  const int64_t now = Clock::wall_ns();
  for (unsigned i = 0; i < n; ++i) burst_[i].packet->set_arrival(now);
}

}  // namespace vireo
