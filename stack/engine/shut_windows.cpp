// Buffers held by peers: a peer that keeps a zero window and answers each probe holds all data
// queued for it, without end, and enough such peers hold the whole pool. RFC 9293 §3.8.6.1 requires
// that such a connection is kept; RFC 6429 §4 allows to end it when resources are short. So when
// the pool is down to the part kept for receiving, the connection with the oldest zero window ends
// by RST, ENOBUFS for its program; and so on until there is room.
//
// Linux ends only orphans for lack of memory (tcp_orphan_retries, tcp_mem in tcp(7)): its memory is
// not one shared pool.
#include <algorithm>
#include <utility>

#include "core/log.h"
#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Fifteen timeouts, at least three seconds: longer than a healthy program is busy.
constexpr uint8_t kShutLong = 4;
/// A search visits all connections in steps of this size, as there may be a million.
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
    const TcpFlow& f = *flows.at(search_next_);  // an unused one has no window
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
