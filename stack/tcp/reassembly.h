// Out-of-order data: a sorted array of ranges that never touch or overlap, each a chain of frames.
// The first copy of a byte wins and is never given up (no reneging); at the limits the new segment
// is dropped. Only exists while there is a hole (heap, a few KiB).
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 9293 §3.10.7.4, RFC 2018 §4.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/packet.h"
#include "core/seq.h"

namespace vireo::tcp {

/// Moves the first `n` bytes of `from` (fewer than it has) to the result. A frame that straddles
/// the cut keeps its first part; the rest is copied to a fresh frame, or dropped with all that
/// follows if there is none.
PacketChain split_front(PacketChain& from, uint32_t n);

/// Moves `from` behind `to`. With `compact`, payloads that fit in the last frame's tailroom are
/// copied there and their own frames freed, so that tiny segments do not pin whole frames.
void append_chain(PacketChain& to, PacketChain&& from, bool compact);

class Reassembly {
 public:
  static constexpr uint32_t kMaxRanges = 64;

  struct Range {
    StreamOffset begin = 0;
    StreamOffset end = 0;
    uint32_t stamp = 0;  ///< rises with each arrival: order of SACK blocks
    PacketChain data;
  };
  struct Inserted {
    bool duplicate = false;  ///< [dup_begin, dup_end) was held already
    StreamOffset dup_begin = 0;
    StreamOffset dup_end = 0;
    bool dropped = false;  ///< some of it was refused: too many ranges or no frame
  };

  bool empty() const { return count_ == 0; }
  uint32_t count() const { return count_; }
  const Range& at(uint32_t i) const { return ranges_[i]; }
  uint32_t buffers() const { return buffers_; }
  uint64_t bytes() const;

  Inserted insert(StreamOffset at, PacketChain data, bool compact);

  StreamOffset first_begin() const { return ranges_[0].begin; }
  StreamOffset last_end() const { return count_ == 0 ? 0 : ranges_[count_ - 1].end; }
  /// Takes the first range's frames.
  PacketChain pop_first();
  /// Up to `max` ranges as SACK blocks, latest arrival first. @return how many.
  unsigned recent(std::span<const Range*> out) const;

 private:
  uint32_t lower(StreamOffset at) const;  ///< first range with end > at
  void erase(uint32_t i);
  bool open_slot(uint32_t i);

  uint32_t count_ = 0;
  uint32_t buffers_ = 0;
  uint32_t clock_ = 0;
  std::array<Range, kMaxRanges> ranges_;
};

}  // namespace vireo::tcp
