// Finds the flow of a frame: one hash table for exact 4-tuples, local endpoints and wildcards. Keys
// are stored in the flows; the table holds 32 bits of their hash. A look-up touches two cache lines
// of the table and then the flow, which is needed anyway; growing touches no flow. The hash is
// keyed, so that an attacker cannot choose tuples that collide. The table grows by doubling, never
// while a frame of a known flow is handled. Frames come in trains: the flow found last is found
// again without a hash.
// Owner: Engine. Thread: holder of the engine's lock.
#pragma once

#include <cstdint>

#include "core/demux_key.h"
#include "core/flow_hash.h"
#include "core/tag_table.h"

namespace vireo {

/// `Keys::key_of(ref)` returns the key of a Ref as long as the Ref is in the table.
template <class Keys>
class DemuxTable {
 public:
  /// Reference to a flow: its kind and address. 0 = none.
  using Ref = uint64_t;

  DemuxTable() : hash_key_(FlowHashKey::random()), hashed_(hash_of(hashed_key_)) {}

  Ref find(const DemuxKey& key) noexcept {
    if (last_ref_ != 0 && last_key_ == key) [[likely]]
      return last_ref_;
    ++searches_;
    const Slot* s = slot_of(key);
    if (s == nullptr) return 0;
    remember(key, s->ref());
    return last_ref_;
  }
  /// The entry with exactly this key, whatever remember() was told. For binding and unbinding.
  Ref find_own(const DemuxKey& key) const noexcept {
    const Slot* s = slot_of(key);
    return s == nullptr ? 0 : s->ref();
  }
  /// Makes find() return `ref` for a key that is not in the table, because its frames match a wider
  /// key. Valid until another key is found or the table changes.
  void remember(const DemuxKey& key, Ref ref) noexcept { last_key_ = key, last_ref_ = ref; }
  /// Adds `ref`, whose key is `key` by Keys. @return false: the key is taken, or memory is
  /// exhausted.
  bool insert(const DemuxKey& key, Ref ref) {
    last_ref_ = 0;
    ++version_;
    const uint32_t h = hash(key);
    if (slot_of(key, h) != nullptr) return false;
    return table_.insert(spread(h), Slot(ref, h), [](const Slot& s) { return spread(s.hash); });
  }
  /// Replaces the entry of `key` by `ref`.
  void replace(const DemuxKey& key, Ref ref) noexcept {
    last_ref_ = 0;
    ++version_;
    if (Slot* s = slot_of(key)) *s = Slot(ref, s->hash);
  }
  /// Removes `ref`, the entry of `key`; no effect if another has replaced it.
  void erase(const DemuxKey& key, Ref ref) noexcept {
    last_ref_ = 0;
    ++version_;
    if (Slot* s = slot_of(key); s != nullptr && s->ref() == ref) table_.erase(s);
  }
  /// Changes with each change of the table: earlier results of find() may then be wrong.
  uint32_t version() const noexcept { return version_; }
  /// Number of look-ups that needed a hash.
  uint64_t searches() const noexcept { return searches_; }
  size_t size() const { return table_.size(); }
  size_t bytes() const { return table_.bytes(); }
  /// For tests: the number of table groups that a look-up reads.
  unsigned groups_searched(const DemuxKey& key) const noexcept {
    const uint32_t h = hash(key);
    return table_.groups_searched(spread(h), [&](const Slot& s) { return s.is(key, h); });
  }

 private:
  struct Slot {  // 12 bytes: the reference in two halves
    Slot() = default;
    Slot(Ref ref, uint32_t h)
        : hash(h), low(static_cast<uint32_t>(ref)), high(static_cast<uint32_t>(ref >> 32)) {}
    Ref ref() const { return uint64_t{high} << 32 | low; }
    bool is(const DemuxKey& key, uint32_t h) const {
      return hash == h && Keys::key_of(ref()) == key;
    }
    uint32_t hash = 0;
    uint32_t low = 0;
    uint32_t high = 0;
  };
  /// Keeps the last hash: after a look-up the caller often inserts, erases or replaces the same
  /// key.
  uint32_t hash(const DemuxKey& key) const noexcept {
    if (hashed_key_ != key) hashed_ = hash_of(key), hashed_key_ = key;
    return hashed_;
  }
  uint32_t hash_of(const DemuxKey& key) const noexcept {
    return static_cast<uint32_t>(key.hash(hash_key_));
  }
  /// The table takes the group from the low bits and the tag from the high bits.
  static uint64_t spread(uint32_t h) { return uint64_t{h} << 32 | h; }
  Slot* slot_of(const DemuxKey& key) const noexcept { return slot_of(key, hash(key)); }
  Slot* slot_of(const DemuxKey& key, uint32_t h) const noexcept {
    return table_.find(spread(h), [&](const Slot& s) { return s.is(key, h); });
  }

  FlowHashKey hash_key_;
  mutable DemuxKey hashed_key_;  ///< the last key that was hashed, and its hash
  mutable uint32_t hashed_;
  TagTable<Slot> table_;
  DemuxKey last_key_;  ///< key of the last find() or remember()
  Ref last_ref_ = 0;   ///< 0 = none
  uint32_t version_ = 0;
  uint64_t searches_ = 0;
};

}  // namespace vireo
