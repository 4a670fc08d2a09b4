// Which ring a socket gets: VMA_RING_ALLOCATION_LOGIC_RX and VMA_RING_LIMIT_PER_INTERFACE. A ring
// is an engine: it has a queue on each interface that it uses, and packets, flows, timers and a
// lock of its own, so that threads with a ring each share nothing. Ring 0 is the engine that every
// process has; there are others only if the settings ask for them.
//
// A ring belongs to a key: a thread, a processor or an address. It keeps the key for as long as
// sockets are in it; then the next new key takes it over. No ring is closed before the process
// ends, for a program that made many threads makes them again. Beyond the limit, new keys share the
// rings in turn.
// Owner: Stack. Thread: holder of its life_lock_; most() and is_for_each_socket() any.
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

/// What a socket is placed by.
struct Placing {
  IpProto proto = IpProto::kTcp;
  Endpoint local;                     ///< its own end, as far as it is known
  bool shares_port = false;           ///< the kernel may let others have the same
  const RouteRequest* way = nullptr;  ///< of one that connects
};

class Rings {
 public:
  static constexpr unsigned kMax = kStatsEngines;
  /// A ring that was chosen is not another's so soon, though no socket may be in it yet.
  static constexpr Duration kUnsettled = Duration::s(1);
  static constexpr size_t kMinArena = size_t{4} << 20;

  explicit Rings(const Settings& s);

  /// 1: there is one ring for all.
  unsigned most() const { return most_; }
  /// Packet memory of one of them: an equal part of what the process is to have, but not less than
  /// a ring can carry a stream with.
  size_t arena_bytes(const Settings& s) const;
  /// Whose ring the calling thread asks for; none: nobody else's. `source`: the socket's address.
  /// Where threads are attached to processors, this is where it happens.
  std::optional<uint64_t> key_of_caller(const IpAddr& source);

  /// The ring of `key`, of `count` there are; `count` itself: one is to be made. `is_unused` says
  /// of a ring that no socket is in it.
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
  /// There will be no more of them: the next one was refused.
  void limit_to(unsigned count) {
    most_ = count;
    std::erase_if(ring_of_, [&](const auto& one) { return one.second >= count; });
  }
  /// The child of a fork begins with none.
  void forget() {
    ring_of_.clear();
    taken_.fill(kNever);
    next_ = 0;
  }

 private:
  static constexpr Instant kNever = Instant::from_ns(INT64_MIN / 2);
  /// Keys that are remembered; a thread that is forgotten chooses anew for its next sockets.
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
  std::array<Instant, kMax> taken_;  ///< when a socket was last sent there
  unsigned next_ = 0;                ///< whose turn it is to be shared
  std::vector<unsigned> attached_;   ///< threads, by processor
};

}  // namespace vireo
