// Hash table of small entries, found by a keyed 64-bit hash that the caller computes: groups of 16
// entries after 16 tags of 7 hash bits, compared at once. A look-up nearly always reads one group:
// its line of tags, and the entry with a matching tag.
//
//   group = hash % groups, then the next one, ...   |16 tags|16 entries|
//   tag   = 0 never used, 1 erased, else 0x80 | top 7 bits of the hash
//
// Beyond a load of 7/8, erased entries included, insert() rehashes to the size that the live
// entries need.
// Owner: one table. Thread: holder of the engine's lock.
// Source: the layout is that of Abseil's Swiss tables, reduced to what is needed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "core/prefetch.h"

namespace vireo {

template <class Entry>
class TagTable {
 public:
  static constexpr unsigned kGroup = 16;

  TagTable() = default;

  size_t size() const { return live_; }
  size_t capacity() const { return groups_ * kGroup; }  ///< entries that memory is allocated for
  size_t bytes() const { return groups_ * sizeof(Group); }

  /// The entry with this hash for which same(entry) holds, else nullptr.
  template <class Same>
  Entry* find(uint64_t hash, Same&& same) const noexcept {
    if (groups_ == 0) return nullptr;
    for (size_t g = hash & (groups_ - 1);; g = (g + 1) & (groups_ - 1)) {
      Group& group = table_[g];
      prefetch_rest(group);  // the entry is read right after its tag, mostly in another line
      for (uint32_t hits = match(group, tag_of(hash)); hits != 0; hits &= hits - 1) {
        Entry& e = group.entries[std::countr_zero(hits)];
        if (same(std::as_const(e))) return &e;
      }
      if (match(group, kFree) != 0) [[likely]]
        return nullptr;
    }
  }

  /// Inserts an entry whose key is not in the table. `hash_of(entry)` gives the hash of any entry,
  /// for growing. @return false: memory is exhausted, nothing was done.
  template <class HashOf>
  bool insert(uint64_t hash, const Entry& entry, HashOf&& hash_of) {
    if ((used_ + 1) * 8 > capacity() * 7 && !rehash(hash_of)) return false;
    put(hash, entry);
    return true;
  }

  void erase(Entry* e) noexcept {
    const auto offset = static_cast<size_t>(reinterpret_cast<std::byte*>(e) -
                                            reinterpret_cast<std::byte*>(table_.get()));
    Group& group = table_[offset / sizeof(Group)];
    const auto at = static_cast<size_t>(e - group.entries);
    // A group with a free entry ends every search, so no search continues past this one.
    const bool ends = match(group, kFree) != 0;
    group.tags[at] = ends ? kFree : kErased;
    if (ends) --used_;
    --live_;
  }

  /// Groups that a search for `hash` reads: 1 in nearly all cases.
  template <class Same>
  unsigned groups_searched(uint64_t hash, Same&& same) const noexcept {
    unsigned n = 1;
    for (size_t g = hash & (groups_ - 1);; g = (g + 1) & (groups_ - 1), ++n) {
      for (uint32_t hits = match(table_[g], tag_of(hash)); hits != 0; hits &= hits - 1)
        if (same(std::as_const(table_[g].entries[std::countr_zero(hits)]))) return n;
      if (match(table_[g], kFree) != 0) return n;
    }
  }

 private:
  static constexpr uint8_t kFree = 0;
  static constexpr uint8_t kErased = 1;
  struct alignas(16) Group {
    uint8_t tags[kGroup] = {};
    Entry entries[kGroup] = {};
  };

  static uint8_t tag_of(uint64_t hash) { return static_cast<uint8_t>(0x80 | hash >> 57); }
  /// Bit i: group.tags[i] == tag.
  static uint32_t match(const Group& g, uint8_t tag) noexcept {
    // SSE2's compare and movemask, without the intrinsics header and its thousands of lines.
    using Tags [[gnu::vector_size(kGroup)]] = char;
    Tags tags;
    __builtin_memcpy(&tags, g.tags, kGroup);
    return static_cast<uint32_t>(
        __builtin_ia32_pmovmskb128(static_cast<Tags>(tags == static_cast<char>(tag))));
  }

  void put(uint64_t hash, const Entry& entry) noexcept {
    for (size_t g = hash & (groups_ - 1);; g = (g + 1) & (groups_ - 1)) {
      Group& group = table_[g];
      const uint32_t room = match(group, kFree) | match(group, kErased);
      if (room == 0) continue;
      const int at = std::countr_zero(room);
      if (group.tags[at] == kFree) ++used_;
      group.tags[at] = tag_of(hash);
      group.entries[at] = entry;
      ++live_;
      return;
    }
  }

  template <class HashOf>
  [[gnu::noinline, gnu::cold]] bool rehash(HashOf&& hash_of) {
    const size_t groups = std::bit_ceil((live_ + 1) * 4 / 3 / kGroup + 1);
    std::unique_ptr<Group[]> fresh(new (std::nothrow) Group[groups]);
    if (fresh == nullptr) return used_ + kGroup < capacity();
    fresh.swap(table_);
    const size_t before = std::exchange(groups_, groups);
    used_ = live_ = 0;
    for (size_t g = 0; g < before; ++g)
      for (unsigned i = 0; i < kGroup; ++i)
        if ((fresh[g].tags[i] & 0x80) != 0) put(hash_of(fresh[g].entries[i]), fresh[g].entries[i]);
    return true;
  }

  std::unique_ptr<Group[]> table_;
  size_t groups_ = 0;  ///< a power of two, or 0
  size_t used_ = 0;    ///< entries that are not free, erased ones included
  size_t live_ = 0;
};

}  // namespace vireo
