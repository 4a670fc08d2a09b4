#include "stack/net/snapshot.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace vireo::net {
namespace {

std::unique_ptr<Snapshot> with_link(const std::string& name) {
  auto s = std::make_unique<Snapshot>();
  Link l;
  l.index = IfIndex(1);
  l.name = name;
  s->links = std::make_shared<const Links>(Links{{l}});
  return s;
}

TEST(SnapshotStore, FreesOnlyWhatNobodyCanSee) {
  SnapshotStore store;
  SnapshotStore::Reader a(store), b(store);
  auto next = with_link("one");
  std::weak_ptr<const Links> one = next->links;
  store.publish(std::move(next));
  a.quiesce(), b.quiesce();
  EXPECT_EQ(a.snapshot().links->all[0].name, "one");
  store.publish(with_link("two"));
  EXPECT_EQ(a.snapshot().generation, 3U);
  EXPECT_EQ(store.generation(), 3U);
  EXPECT_FALSE(one.expired()) << "a and b may still read it";
  a.quiesce();
  EXPECT_EQ(store.reclaim(), 1U);
  EXPECT_FALSE(one.expired()) << "b may still read it";
  b.quiesce();
  EXPECT_EQ(store.reclaim(), 0U);
  EXPECT_TRUE(one.expired());
}

TEST(SnapshotStore, AReaderThatGoesHoldsNothingBack) {
  SnapshotStore store;
  {
    SnapshotStore::Reader r(store);
    store.publish(with_link("one"));
    EXPECT_EQ(store.reclaim(), 1U);
  }
  EXPECT_EQ(store.reclaim(), 0U);
}

/// Readers check that what they see is whole while a writer replaces it; sanitizers see any use
/// after free.
TEST(SnapshotStore, ReadersNeverSeeAFreedSnapshot) {
  SnapshotStore store;
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&store, &stop] {
      SnapshotStore::Reader r(store);
      uint64_t last = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        const Snapshot& s = r.snapshot();
        ASSERT_GE(s.generation, last);
        last = s.generation;
        if (!s.links->all.empty()) {
          ASSERT_EQ(s.links->all[0].name, "link-" + std::to_string(s.generation));
        }
        r.quiesce();
      }
    });
  }
  for (uint64_t g = 2; g < 3000; ++g) store.publish(with_link("link-" + std::to_string(g)));
  stop = true;
  for (auto& t : readers) t.join();
  EXPECT_EQ(store.reclaim(), 0U);
}

}  // namespace
}  // namespace vireo::net
