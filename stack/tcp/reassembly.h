// Out-of-order data: a sorted array of ranges that never touch or overlap, each a chain of frames.
// The first copy of a byte wins and is never given up (no reneging); at the limits the new segment
// is dropped. Exists only while there is a hole (heap, a few KiB; more with thousands of holes).
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.10.7.4, RFC 2018 §4.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "core/packet.h"
#include "core/seq.h"

namespace vireo::tcp {

/// Moves the first `n` bytes of `from` (fewer than it has) to the result. A frame across the cut
/// keeps its first part; its rest is copied to a new frame. If there is none, the rest and all that
/// follows are dropped.
PacketChain split_front(PacketChain& from, uint32_t n);

/// Appends `from` to `to`. With `compact`, payloads that fit in the last frame's tailroom are
/// copied there and their own frames freed, so that small segments do not pin whole frames.
void append_chain(PacketChain& to, PacketChain&& from, bool compact);

class Reassembly {
 public:
  /// An overflowing queue may drop every other segment of a round trip, so thousands of holes
  /// occur.
  static constexpr uint32_t kMaxRanges = 4096;

  struct Range {
    StreamOffset begin = 0;
    StreamOffset end = 0;
    PacketChain data;
    uint16_t newer = 0, older = 0;  ///< ids of the neighbours in order of arrival
  };
  struct Inserted {
    bool duplicate = false;  ///< [dup_begin, dup_end) was received before
    StreamOffset dup_begin = 0;
    StreamOffset dup_end = 0;
    bool dropped = false;  ///< some of it was dropped: too many ranges or no frame
  };

  bool empty() const { return count_ == 0; }
  uint32_t count() const { return count_; }
  const Range& at(uint32_t i) const { return range(order_[i]); }
  uint32_t buffers() const { return buffers_; }
  uint64_t bytes() const;

  Inserted insert(StreamOffset offset, PacketChain data, bool compact);

  StreamOffset first_begin() const { return at(0).begin; }
  StreamOffset last_end() const { return count_ == 0 ? 0 : at(count_ - 1).end; }
  /// Takes the first range's frames.
  PacketChain pop_first();
  /// Ranges for SACK blocks, latest arrival first, without the latest `skip`. @return their number.
  unsigned recent(std::span<const Range*> out, unsigned skip = 0) const;

 private:
  // Ranges stay at their place in the chunks; its index is their id. `order_` has the ids by
  // offset, so that inserting or removing a range among thousands moves two bytes for each.
  using Id = uint16_t;
  static constexpr Id kNone = UINT16_MAX;
  static constexpr uint32_t kChunk = 64;
  using Chunk = std::array<Range, kChunk>;

  Range& range(Id id) const { return (*chunks_[id / kChunk])[id % kChunk]; }
  uint32_t lower(StreamOffset offset) const;  ///< first range with end > offset
  bool add_chunk();
  bool open_slot(uint32_t i);  ///< false: too many, or no memory
  void erase(uint32_t i);      ///< its frames must have been taken
  void unlink(Id id);
  void link_newest(Id id);
  void touch(Id id);

  uint32_t count_ = 0;
  uint32_t buffers_ = 0;
  uint32_t capacity_ = 0;  ///< of order_, a multiple of kChunk; ids [count_, capacity_) are free
  Id newest_ = kNone;
  std::unique_ptr<Id[]> order_;
  std::array<std::unique_ptr<Chunk>, kMaxRanges / kChunk> chunks_;
};

}  // namespace vireo::tcp
