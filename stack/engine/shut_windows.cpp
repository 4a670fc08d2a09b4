// Frames that peers hold: who keeps its window shut and answers every probe holds all that was to
// be sent to it, for ever, and enough of them hold the pool. RFC 9293 §3.8.6.1 wants such a
// connection kept; RFC 6429 §4 allows it to end where resources are short. So when the pool is down
// to the part that is kept for receiving, the connection whose window has been shut the longest is
// ended by RST, ENOBUFS for its program; and so on until there is room.
//
// Linux ends orphans alone for want of memory (tcp_orphan_retries, tcp_mem in tcp(7)): its memory
// is not one pool for all.
#include <algorithm>
#include <utility>

#include "core/log.h"
#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Fifteen timeouts, three seconds at least: longer than a program is busy that is well.
constexpr uint8_t kShutLong = 4;
/// A look goes over all connections in such steps, for there may be a million.
constexpr uint32_t kStep = 4096;
constexpr Duration kStepEvery = Duration::ms(5);

}  // namespace

void PoolPressure::end_shut_longest(Instant now) noexcept {
  if (now - searched_at_ < kStepEvery) return;
  searched_at_ = now;
  Slab<TcpFlow>& flows = hub().tcp.slab();
  const TcpFlow* longest = flows.get(shut_longest_);
  const uint32_t all = flows.capacity();
  for (const uint32_t end = std::min(search_next_ + kStep, all); search_next_ < end;
       ++search_next_) {
    const TcpFlow& f = *flows.at(search_next_);  // one that does not live has no window
    const uint8_t most = longest == nullptr ? kShutLong - 1 : tcp::shut_doublings(longest->tcb);
    if (tcp::shut_doublings(f.tcb) <= most) continue;
    longest = &f;
    shut_longest_ = flows.handle(f);
  }
  if (search_next_ < all) return;
  search_next_ = 0;
  TcpFlow* const f = flows.get(std::exchange(shut_longest_, {}));
  if (f == nullptr || tcp::shut_doublings(f->tcb) < kShutLong) return;
  log<LogLevel::kInfo>("port {} to {}: ended, for its peer reads nothing and packets are short",
                       f->key.local.port, f->key.remote.port);
  hub().notifications.note(*f, tcp::evict(f->tcb, ENOBUFS));
}

}  // namespace vireo
