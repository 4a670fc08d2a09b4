// Finds the flow of a frame: one open-addressing table over exact 4-tuples, local endpoints and
// wildcards. Keys lie in the table, so a look-up touches one or two cache lines; the hash is keyed,
// so that a stranger cannot choose tuples that collide. Grows by doubling; never on the path of a
// frame of a known flow. Owner: Engine. Thread: holder of the engine's lock.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/address.h"
#include "core/flow_hash.h"

namespace vireo {

/// Addresses and ports as they are compared: 40 bytes without padding. Wildcards are zero.
struct DemuxKey {
  uint8_t local[16] = {};
  uint8_t remote[16] = {};
  uint16_t local_port = 0;
  uint16_t remote_port = 0;
  uint8_t proto = 0;
  uint8_t v6 = 0;  ///< family of a wildcard; 0 where addresses tell
  uint16_t unused = 0;

  static DemuxKey exact(IpProto proto, const IpAddr& local, uint16_t local_port,
                        const IpAddr& remote, uint16_t remote_port) {
    DemuxKey k;
    std::memcpy(k.local, local.bytes().data(), 16);
    std::memcpy(k.remote, remote.bytes().data(), 16);
    k.local_port = local_port;
    k.remote_port = remote_port;
    k.proto = static_cast<uint8_t>(proto);
    return k;
  }
  /// `local` unspecified: any address of the family.
  static DemuxKey bound(IpProto proto, const IpAddr& local, uint16_t port, bool v6) {
    DemuxKey k;
    if (local.is_unspecified())
      k.v6 = v6 ? 1 : 0;
    else
      std::memcpy(k.local, local.bytes().data(), 16);
    k.local_port = port;
    k.proto = static_cast<uint8_t>(proto);
    return k;
  }
  bool operator==(const DemuxKey& o) const { return std::memcmp(this, &o, sizeof o) == 0; }
};
static_assert(sizeof(DemuxKey) == 40);

class Demux {
 public:
  /// A flow's name in the table: what kind it is and where. 0 = none.
  using Ref = uint64_t;

  Demux() : hash_key_(FlowHashKey::random()), slots_(64) {}

  Ref find(const DemuxKey& key) const noexcept {
    for (size_t i = start(key);; i = (i + 1) & mask()) {
      const Slot& s = slots_[i];
      if (s.ref == 0) return 0;
      if (s.ref != kGone && s.key == key) return s.ref;
    }
  }
  /// @return false: the key is taken.
  bool insert(const DemuxKey& key, Ref ref) {
    if (find(key) != 0) return false;
    if ((used_ + 1) * 4 > slots_.size() * 3) rehash();
    for (size_t i = start(key);; i = (i + 1) & mask()) {
      Slot& s = slots_[i];
      if (s.ref == 0 || s.ref == kGone) {
        if (s.ref == 0) ++used_;
        s = {key, ref};
        ++live_;
        return true;
      }
    }
  }
  /// Changes what a key that is in the table stands for.
  void replace(const DemuxKey& key, Ref ref) noexcept {
    if (Slot* s = slot_of(key)) s->ref = ref;
  }
  void erase(const DemuxKey& key) noexcept {
    if (Slot* s = slot_of(key)) {
      s->ref = kGone;
      --live_;
    }
  }
  size_t size() const { return live_; }

 private:
  static constexpr Ref kGone = ~Ref{0};
  struct Slot {
    DemuxKey key;
    Ref ref = 0;
  };

  size_t mask() const { return slots_.size() - 1; }
  size_t start(const DemuxKey& key) const noexcept {
    return flow_hash(hash_key_, &key, sizeof key) & mask();
  }
  Slot* slot_of(const DemuxKey& key) noexcept {
    for (size_t i = start(key);; i = (i + 1) & mask()) {
      Slot& s = slots_[i];
      if (s.ref == 0) return nullptr;
      if (s.ref != kGone && s.key == key) return &s;
    }
  }
  void rehash() {
    std::vector<Slot> old(live_ * 4 > slots_.size() ? slots_.size() * 2 : slots_.size());
    old.swap(slots_);
    used_ = live_;
    for (const Slot& s : old) {
      if (s.ref == 0 || s.ref == kGone) continue;
      size_t i = start(s.key);
      while (slots_[i].ref != 0) i = (i + 1) & mask();
      slots_[i] = s;
    }
  }

  FlowHashKey hash_key_;
  std::vector<Slot> slots_;
  size_t used_ = 0;  ///< slots that are not free, the erased among them
  size_t live_ = 0;
};

}  // namespace vireo
