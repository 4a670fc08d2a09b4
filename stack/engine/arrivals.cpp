// When frames arrived: one look at the clock for each burst, while a socket asks for it.
#include <cstdint>

#include "stack/engine/hub.h"

namespace vireo {

void Ports::ask_arrivals(Flow& f, bool on) noexcept {
  if (f.asks_arrivals == on) return;
  f.asks_arrivals = on;
  const bool noted = notes_arrivals();
  askers_ += on ? 1U : UINT32_MAX;
  if (notes_arrivals() == noted) return;
  asked_since_ = noted ? INT64_MAX : Clock::wall_ns();
  choose_only();
}

unsigned Receive::take_burst(Queue& queue) noexcept {
  const unsigned n = queue.rx_burst(burst_);
  if (!hub().ports.notes_arrivals() || n == 0) [[likely]]
    return n;
  const int64_t now = Clock::wall_ns();
  for (unsigned i = 0; i < n; ++i) burst_[i].packet->set_arrival(now);
  return n;
}

}  // namespace vireo
