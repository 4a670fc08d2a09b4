// Chooses a socket's ring: VMA_RING_ALLOCATION_LOGIC_RX and VMA_RING_LIMIT_PER_INTERFACE. A ring is
// an engine: it has a queue on each interface that it uses, and its own packets, flows, timers and
// lock, so that threads with a ring each share nothing. Ring 0 is the engine that every process
// has; there are others only if the settings ask for them.
//
// A ring belongs to a key: a thread, a processor or an address. It keeps its key while it has
// sockets; after that the next new key takes it over. No ring is closed before the process ends,
// because a program that made many threads will make many again. Beyond the limit, new keys share
// the rings in turn.
// Owner: Stack. Thread: holder of its life_lock_; most() any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "config/settings.h"
#include "core/clock.h"
#include "core/stats_layout.h"
#include "stack/engine/engine.h"

namespace vireo {

/// What decides a socket's ring.
struct Placing {
  IpProto proto = IpProto::kTcp;
  Endpoint local;                     ///< local address and port, as far as known
  bool shares_port = false;           ///< the kernel may let other sockets bind the same port
  const RouteRequest* way = nullptr;  ///< for a connecting socket
};

class Rings {
 public:
  static constexpr unsigned kMax = kStatsEngines;
  /// A ring chosen less than this ago is not given to another key, even if it has no socket yet.
  static constexpr Duration kUnsettled = Duration::s(1);
  static constexpr size_t kMinArena = size_t{4} << 20;

  explicit Rings(const Settings& s);

  /// The highest number of rings; 1: one ring for all.
  unsigned most() const { return most_; }
  /// Packet memory of one ring: an equal part of the process's, but at least what a ring needs to
  /// carry a stream.
  size_t arena_bytes(const Settings& s) const;
  /// The key of the calling thread; nullopt: a ring of its own, if possible. `source`: the socket's
  /// address. Where the settings attach threads to processors, this call does it.
  std::optional<uint64_t> key_of_caller(const IpAddr& source);

  /// The ring of `key`, one of `count`; `count` itself: a new one must be made. `is_unused` returns
  /// whether a ring has no socket.
  template <class F>
  unsigned choose(std::optional<uint64_t> key, unsigned count, Instant now, F&& is_unused) {
    if (key)
      if (const auto had = ring_of_.find(*key); had != ring_of_.end())
        return take(had->second, now);
    for (unsigned i = 0; i < count; ++i)
      if (now - taken_[i] >= kUnsettled && is_unused(i)) {
        std::erase_if(ring_of_, [&](const auto& one) { return one.second == i; });
        return take_for(key, i, now);
      }
    return take_for(key, count < most_ ? count : next_++ % most_, now);
  }
  /// No more rings can be made: creating the next one failed.
  void limit_to(unsigned count) {
    most_ = count;
    std::erase_if(ring_of_, [&](const auto& one) { return one.second >= count; });
  }
  /// In the child of a fork: it starts with no ring.
  void forget() {
    ring_of_.clear();
    taken_.fill(kNever);
    next_ = 0;
  }

 private:
  static constexpr Instant kNever = Instant::from_ns(INT64_MIN / 2);
  /// Limit of remembered keys; a forgotten thread chooses again for its next sockets.
  static constexpr size_t kMaxKeys = 4096;

  unsigned take(unsigned ring, Instant now) {
    taken_[ring] = now;
    return ring;
  }
  unsigned take_for(std::optional<uint64_t> key, unsigned ring, Instant now) {
    if (ring_of_.size() >= kMaxKeys) ring_of_.clear();
    if (key) ring_of_[*key] = ring;
    return take(ring, now);
  }
  int attach();

  RingLogic logic_;
  unsigned most_;
  std::unordered_map<uint64_t, unsigned> ring_of_;
  std::array<Instant, kMax> taken_;  ///< when a socket was last placed there
  unsigned next_ = 0;                ///< the next ring to share
  std::vector<unsigned> attached_;   ///< number of attached threads, by processor
};

}  // namespace vireo
