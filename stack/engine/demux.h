// Finds the flow of a frame: one table over exact 4-tuples, local endpoints and wildcards. Keys lie
// in the flows; the table has 32 bits of their hash, so a look-up touches its two cache lines and
// then the flow's own, which is wanted anyway, and growing touches no flow. The hash is keyed, so
// that a stranger cannot choose tuples that collide. Grows by doubling; never on the path of a
// frame of a known flow. The flow found last is found again without a hash: frames come in trains.
// Owner: Engine. Thread: holder of the engine's lock.
#pragma once

#include <cstdint>

#include "core/demux_key.h"
#include "core/flow_hash.h"
#include "core/tag_table.h"

namespace vireo {

/// `Keys::key_of(ref)` says the key of what a Ref names, for as long as it stands in the table.
template <class Keys>
class DemuxTable {
 public:
  /// A flow's name in the table: what kind it is and where. 0 = none.
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
  /// What has this very key, whatever find() was told to say of it: who binds or unbinds it asks.
  Ref find_own(const DemuxKey& key) const noexcept {
    const Slot* s = slot_of(key);
    return s == nullptr ? 0 : s->ref();
  }
  /// What find() shall say of a key that is not in the table itself, but whose frames are for a
  /// wider one's flow. Holds until another is found or the table changes.
  void remember(const DemuxKey& key, Ref ref) noexcept { last_key_ = key, last_ref_ = ref; }
  /// What has `key` by Keys from now on. @return false: the key is taken, or memory is exhausted.
  bool insert(const DemuxKey& key, Ref ref) {
    last_ref_ = 0;
    ++version_;
    const uint32_t h = hash(key);
    if (slot_of(key, h) != nullptr) return false;
    return table_.insert(spread(h), Slot(ref, h), [](const Slot& s) { return spread(s.hash); });
  }
  /// `ref` instead of what has the key now.
  void replace(const DemuxKey& key, Ref ref) noexcept {
    last_ref_ = 0;
    ++version_;
    if (Slot* s = slot_of(key)) *s = Slot(ref, s->hash);
  }
  /// `ref` has the key no more; nothing happens if another has it by now.
  void erase(const DemuxKey& key, Ref ref) noexcept {
    last_ref_ = 0;
    ++version_;
    if (Slot* s = slot_of(key); s != nullptr && s->ref() == ref) table_.erase(s);
  }
  /// Another one after each change of the table: what find() said before may be wrong.
  uint32_t version() const noexcept { return version_; }
  /// Look-ups so far that took a hash.
  uint64_t searches() const noexcept { return searches_; }
  size_t size() const { return table_.size(); }
  size_t bytes() const { return table_.bytes(); }
  /// Cost of a look-up, for tests: groups of the table that it reads.
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
  /// Who did not find a key puts it in, and who found one takes it out or puts another there.
  uint32_t hash(const DemuxKey& key) const noexcept {
    if (hashed_key_ != key) hashed_ = hash_of(key), hashed_key_ = key;
    return hashed_;
  }
  uint32_t hash_of(const DemuxKey& key) const noexcept {
    return static_cast<uint32_t>(key.hash(hash_key_));
  }
  /// The table takes the group from the low bits and the tag from the top ones.
  static uint64_t spread(uint32_t h) { return uint64_t{h} << 32 | h; }
  Slot* slot_of(const DemuxKey& key) const noexcept { return slot_of(key, hash(key)); }
  Slot* slot_of(const DemuxKey& key, uint32_t h) const noexcept {
    return table_.find(spread(h), [&](const Slot& s) { return s.is(key, h); });
  }

  FlowHashKey hash_key_;
  mutable DemuxKey hashed_key_;  ///< the last that was hashed, and its hash
  mutable uint32_t hashed_;
  TagTable<Slot> table_;
  DemuxKey last_key_;  ///< what find() found, or remember() was told, last
  Ref last_ref_ = 0;   ///< 0 = none
  uint32_t version_ = 0;
  uint64_t searches_ = 0;
};

}  // namespace vireo
