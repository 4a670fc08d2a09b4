// Type-stable slabs: objects of one type in chunks that are never freed, with generations.
//
// A SlabHandle identifies one life of one object. free() ends that life and leaves the object as
// newly constructed: by its own recycle() if it has one (for objects that other threads may still
// read: it may change only atomics), else by destroying and constructing it in place. So memory
// that once held a T always holds a T. Owner: one engine or table. Thread: alloc(), free(),
// for_each() by the owner (holder of its lock); get() and at() by any thread, which then locks the
// object and checks the generation again by is_live().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "core/assert.h"

namespace vireo {

/// Index and generation of an object; the default names none.
struct SlabHandle {
  uint32_t index = 0;
  uint32_t generation = 0;  ///< odd while the object lives
  bool operator==(const SlabHandle&) const = default;
};

template <class T, uint32_t kChunkObjects = 64>
class Slab {
  static_assert(std::has_single_bit(kChunkObjects));

 public:
  /// Allocates the table of chunks only. alloc() gives out at most `max_objects`, rounded up to
  /// whole chunks.
  explicit Slab(uint32_t max_objects = 1U << 20)
      : chunk_limit_((max_objects + kChunkObjects - 1) / kChunkObjects),
        chunks_(new std::atomic<Chunk*>[chunk_limit_] {}) {}
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    for (uint32_t i = 0; i < chunk_count_; ++i)
      delete chunks_[i].load(std::memory_order_relaxed);  // the owner wrote it
  }

  /// A newly constructed object, or nullptr: the limit is reached or memory is exhausted. O(1);
  /// allocates only if no object is free, one chunk at a time.
  T* alloc() {
    if (free_ == kNone && !grow()) [[unlikely]]
      return nullptr;
    Slot* s = find(free_);
    free_ = std::exchange(s->link, free_);
    // release pairs with the acquire in get(): a thread that sees the new generation sees the
    // object as constructed.
    s->generation.store(s->generation.load(std::memory_order_relaxed) + 1,
                        std::memory_order_release);
    ++live_;
    return &s->object;
  }

  /// Ends the life of `t`: its handles become invalid.
  void free(T& t) noexcept {
    Slot& s = slot_of(t);
    const uint32_t g = s.generation.load(std::memory_order_relaxed);  // only the owner writes it
    VIREO_ASSERT((g & 1) != 0);
    // release pairs with the acquire in is_live(): a thread that sees the old generation read
    // before the recycling.
    s.generation.store(g + 1, std::memory_order_release);
    if constexpr (requires { t.recycle(); }) {
      t.recycle();
    } else {
      std::destroy_at(&s.object);
      std::construct_at(&s.object);
    }
    free_ = std::exchange(s.link, free_);
    --live_;
  }

  /// The handle of a live object.
  SlabHandle handle(const T& t) const noexcept {
    const Slot& s = slot_of(const_cast<T&>(t));
    return {s.link, s.generation.load(std::memory_order_relaxed)};  // the caller keeps it alive
  }

  /// The object if that life has not ended, else nullptr. For other threads it may end right after;
  /// see above.
  T* get(SlabHandle h) const noexcept {
    Slot* s = find(h.index);
    // acquire pairs with the release in alloc().
    return s != nullptr && (h.generation & 1) != 0 &&
                   s->generation.load(std::memory_order_acquire) == h.generation
               ? &s->object
               : nullptr;
  }
  bool is_live(SlabHandle h) const noexcept { return get(h) != nullptr; }

  /// The object at an index, live or not; nullptr if there never was one.
  T* at(uint32_t index) const noexcept {
    Slot* s = find(index);
    return s == nullptr ? nullptr : &s->object;
  }

  /// Calls fn(T&) for every live object, in order of index. fn may free its object, and may
  /// alloc().
  template <class F>
  void for_each(F&& fn) {
    for (uint32_t c = 0; c < chunk_count_; ++c)
      for (Slot& s : chunks_[c].load(std::memory_order_relaxed)->slots)  // the owner wrote it
        if ((s.generation.load(std::memory_order_relaxed) & 1) != 0) fn(s.object);
  }

  uint32_t size() const noexcept { return live_; }  ///< objects alive
  uint32_t capacity() const noexcept {
    return chunk_count_ * kChunkObjects;
  }  ///< objects in chunks

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  /// Objects of a cache line or more are aligned to one.
  static constexpr size_t kAlignment =
      std::max({alignof(T), alignof(uint32_t), sizeof(T) >= 64 ? size_t{64} : size_t{1}});
  struct alignas(kAlignment) Slot {
    T object{};  // first: the address of the object is that of the slot
    std::atomic<uint32_t> generation{0};
    uint32_t link = 0;  ///< its index while live, else the index of the next free one
  };
  struct Chunk {
    Slot slots[kChunkObjects];
  };

  static Slot& slot_of(T& t) noexcept { return *reinterpret_cast<Slot*>(&t); }
  Slot* find(uint32_t index) const noexcept {
    const uint32_t c = index / kChunkObjects;
    if (c >= chunk_limit_) return nullptr;
    // acquire pairs with the release in grow().
    Chunk* chunk = chunks_[c].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk->slots[index % kChunkObjects];
  }
  [[gnu::noinline, gnu::cold]] bool grow() {
    if (chunk_count_ == chunk_limit_) return false;
    Chunk* c = new (std::nothrow) Chunk;
    if (c == nullptr) return false;
    for (uint32_t i = kChunkObjects; i-- > 0;) {  // from the end: low indices are used first
      c->slots[i].link = free_;
      free_ = chunk_count_ * kChunkObjects + i;
    }
    // release pairs with the acquire in find(): the chunk is constructed before it is visible.
    chunks_[chunk_count_++].store(c, std::memory_order_release);
    return true;
  }

  uint32_t chunk_limit_;
  uint32_t chunk_count_ = 0;
  uint32_t live_ = 0;
  uint32_t free_ = kNone;
  std::unique_ptr<std::atomic<Chunk*>[]> chunks_;
};

}  // namespace vireo
