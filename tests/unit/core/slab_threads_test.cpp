#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "core/slab.h"

namespace vireo {
namespace {

// Readers look objects up by handle while the owner frees and reuses them: memory stays an object,
// and a look-up that succeeds never shows another life's value together with a generation that is
// still current.
TEST(Slab, ReadersRaceTheOwner) {
  struct Obj {
    std::atomic<uint32_t> life{0};  // generation it was made for
    void recycle() { life.store(0, std::memory_order_relaxed); }
  };
  Slab<Obj, 4> slab(64);
  std::array<std::atomic<uint64_t>, 8> published{};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> hits{0};
  {
    std::jthread reader([&] {
      while (!stop) {
        for (auto& p : published) {
          const uint64_t v = p.load(std::memory_order_acquire);  // pairs with the owner's release
          const SlabHandle h{static_cast<uint32_t>(v), static_cast<uint32_t>(v >> 32)};
          if (Obj* o = slab.get(h)) {
            const uint32_t life = o->life.load(std::memory_order_acquire);
            if (slab.is_live(h)) {
              ASSERT_EQ(life, h.generation);
              hits.fetch_add(1, std::memory_order_relaxed);
            }
          }
        }
      }
    });
    std::array<Obj*, 8> mine{};
    for (int i = 0; i < 100000; ++i) {
      const size_t k = static_cast<size_t>(i) % mine.size();
      if (mine[k] != nullptr) slab.free(*mine[k]);
      mine[k] = slab.alloc();
      const SlabHandle h = slab.handle(*mine[k]);
      mine[k]->life.store(h.generation, std::memory_order_release);
      published[k].store(uint64_t{h.generation} << 32 | h.index, std::memory_order_release);
      if (i % 1000 == 0) std::this_thread::yield();
    }
    while (hits == 0) std::this_thread::yield();
    stop = true;
  }
  EXPECT_GT(hits.load(), 0U);
}

}  // namespace
}  // namespace vireo
