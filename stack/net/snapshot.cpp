#include "stack/net/snapshot.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "stack/net/lookup.h"

namespace vireo::net {

SnapshotStore::SnapshotStore() {
  auto first = std::make_unique<Snapshot>();
  first->generation = 1;
  current_.store(first.release(), std::memory_order_release);
}

SnapshotStore::~SnapshotStore() {
  VIREO_ASSERT(readers_.empty());
  delete current_.load(std::memory_order_relaxed);
}

void SnapshotStore::publish(std::unique_ptr<Snapshot> next) {
  next->generation = generation_.load(std::memory_order_relaxed) + 1;
  next->by_ports = ports_matter(*next);
  const uint64_t generation = next->generation;
  std::unique_ptr<const Snapshot> old(current_.exchange(next.release(), std::memory_order_acq_rel));
  // A reader of this generation reads this snapshot or a later one: pairs with the acquire in
  // generation().
  generation_.store(generation, std::memory_order_release);
  {
    const std::lock_guard guard(mutex_);
    retired_.push_back(std::move(old));
  }
  reclaim();
}

size_t SnapshotStore::reclaim() {
  const std::lock_guard guard(mutex_);
  uint64_t oldest = UINT64_MAX;  // without readers all can be freed
  // Pairs with the release in quiesce().
  for (const Reader* r : readers_)
    oldest = std::min(oldest, r->seen_.load(std::memory_order_acquire));
  // A reader that has seen generation g may hold snapshot g or a later one.
  std::erase_if(retired_, [&](const auto& s) { return s->generation < oldest; });
  return retired_.size();
}

SnapshotStore::Reader::Reader(SnapshotStore& store) : store_(store), seen_(0) {
  const std::lock_guard guard(store.mutex_);
  store.readers_.push_back(this);
  seen_.store(store.generation(), std::memory_order_release);
}

SnapshotStore::Reader::~Reader() {
  const std::lock_guard guard(store_.mutex_);
  std::erase(store_.readers_, this);
}

}  // namespace vireo::net
