// The kernel's network state at one moment, immutable; how it is published to engines and later
// freed. A reader may keep references into a snapshot only between two calls of its quiesce(); an
// old snapshot is freed when every reader has called quiesce() since it was replaced. Owner:
// SnapshotStore owns snapshots. Thread: publish() by one thread (the helper); a Reader by one
// thread at a time (the holder of its engine's lock); attaching and detaching readers by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "stack/net/addrs.h"
#include "stack/net/links.h"
#include "stack/net/neighbours.h"
#include "stack/net/routes.h"
#include "stack/net/rules.h"

namespace vireo::net {

/// Unchanged tables are shared with the previous snapshot. No pointer is ever null.
struct Snapshot {
  uint64_t generation = 0;  ///< 1, 2, ...: set by publish()
  bool by_ports = false;    ///< ports_matter(): set by publish()
  std::shared_ptr<const Links> links = std::make_shared<const Links>();
  std::shared_ptr<const Addrs> addrs = std::make_shared<const Addrs>();
  std::shared_ptr<const Rules> rules = std::make_shared<const Rules>();
  std::shared_ptr<const RouteTables> routes = std::make_shared<const RouteTables>();
  std::shared_ptr<const Neighbours> neighbours = std::make_shared<const Neighbours>();
};

class SnapshotStore {
 public:
  class Reader;

  SnapshotStore();   ///< starts with an empty snapshot of generation 1
  ~SnapshotStore();  ///< every reader must be gone
  SnapshotStore(const SnapshotStore&) = delete;
  SnapshotStore& operator=(const SnapshotStore&) = delete;

  /// Makes `next` the current snapshot and frees old ones that no reader can use any more.
  void publish(std::unique_ptr<Snapshot> next);
  /// Frees what readers have released since. @return number of old snapshots that a reader may
  /// still use.
  size_t reclaim();
  /// Changes at each publish(); one load. Compare with a NextHop's generation.
  uint64_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }

 private:
  friend class Reader;
  std::atomic<const Snapshot*> current_;
  std::atomic<uint64_t> generation_{1};
  std::mutex mutex_;
  std::vector<Reader*> readers_;                          // guarded by mutex_
  std::vector<std::unique_ptr<const Snapshot>> retired_;  // guarded by mutex_
};

/// One engine's view.
class SnapshotStore::Reader {
 public:
  explicit Reader(SnapshotStore& store);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// The current snapshot; valid until the next quiesce() of this reader.
  const Snapshot& snapshot() const noexcept {
    return *store_.current_.load(std::memory_order_acquire);  // pairs with the one in publish()
  }
  /// One load, for the check at each send.
  uint64_t generation() const noexcept { return store_.generation(); }
  /// Declares that this reader holds no reference into a snapshot: once per poll. Costs one load
  /// and a compare when nothing has changed.
  void quiesce() noexcept {
    const uint64_t g = store_.generation();
    // Pairs with the acquire in reclaim(): our reads of older snapshots happen before they are
    // freed.
    if (g != seen_.load(std::memory_order_relaxed)) seen_.store(g, std::memory_order_release);
  }

 private:
  friend class SnapshotStore;
  SnapshotStore& store_;
  std::atomic<uint64_t> seen_;
};

}  // namespace vireo::net
