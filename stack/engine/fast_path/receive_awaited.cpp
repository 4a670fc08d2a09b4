// Frames that a blocked call waits for: functions out of line, and a rare case.
#include "stack/engine/fast_path/receive_awaited.h"

namespace vireo {

[[gnu::hot]] Engine::PolledFor Engine::poll_for(TcpFlow& f, const iovec& to, Instant now) noexcept {
  return poll_for_here(f, to, now, PollOf::kWait);
}
[[gnu::hot]] Engine::PolledFor Engine::poll_for(UdpFlow& u, const iovec& to, Instant now) noexcept {
  return poll_for_here(u, to, now, PollOf::kWait);
}

bool awaited::begins_row(UdpFlow& u, const std::byte* frame) noexcept {
  return u.expected.accept(frame);
}

}  // namespace vireo
