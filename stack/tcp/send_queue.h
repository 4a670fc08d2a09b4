// What the program wrote and the peer has not acknowledged: a ring of descriptors in stream order.
//
//   head                    next                      tail
//    |  sent, maybe lost     |  never sent             |
//    [d0][d1][d2][d3] .......[dn][dn+1] ...............
//
// A descriptor is one frame of payload, normally one segment. Descriptors never move between lists
// and a frame is never written once sent: an ACK inside a descriptor is nothing but the Tcb's
// snd_una, a cut for a smaller path is nothing but a shorter Plan.
// The ring is taken from the heap at the first append, doubled when full, given back when idle.
// Owner: a Tcb. Thread: holder of its engine's lock.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "core/assert.h"
#include "core/clock.h"
#include "core/packet.h"
#include "core/seq.h"

namespace vireo::tcp {

struct SendDesc {
  StreamOffset offset = 0;      ///< of the frame's first byte
  PacketBuf* packet = nullptr;  ///< one reference is ours
  Instant sent_at;              ///< of the latest transmission
  uint32_t length = 0;
  uint16_t retransmits = 0;
  uint16_t flags = 0;  ///< for the SACK scoreboard to come

  StreamOffset end() const { return offset + length; }
};
static_assert(sizeof(SendDesc) == 32);

class SendQueue {
 public:
  SendQueue() = default;
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;
  ~SendQueue() { clear(); }

  bool empty() const { return count_ == 0; }
  uint32_t count() const { return count_; }
  SendDesc& front() { return ring_[head_ & mask_]; }
  SendDesc& back() { return ring_[(head_ + count_ - 1) & mask_]; }
  SendDesc& at(uint32_t i) { return ring_[(head_ + i) & mask_]; }

  /// First descriptor not wholly sent. Requires has_next().
  bool has_next() const { return next_ != head_ + count_; }
  SendDesc& next() { return ring_[next_ & mask_]; }
  void pass_next() { ++next_; }

  /// Takes over one reference of `p`. False: no memory for a larger ring.
  bool push_back(StreamOffset offset, PacketBuf* p) {
    if (ring_ == nullptr || count_ > mask_) [[unlikely]] {
      if (!grow()) return false;
    }
    ring_[(head_ + count_) & mask_] = SendDesc{.offset = offset,
                                               .packet = p,
                                               .sent_at = {},
                                               .length = p->length,
                                               .retransmits = 0,
                                               .flags = 0};
    ++count_;
    return true;
  }
  void pop_front() {
    PacketPool::drop(front().packet);
    if (next_ == head_) ++next_;
    ++head_;
    --count_;
  }
  /// The descriptor that holds `offset`; requires front().offset <= offset < back().end().
  SendDesc& find(StreamOffset offset) {
    uint32_t low = 0;
    uint32_t high = count_;
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      (at(middle).offset <= offset ? low : high) = middle;
    }
    return at(low);
  }
  /// Drops all frames and the ring.
  void clear() {
    while (count_ > 0) pop_front();
    free_ring();
  }
  /// Gives the ring back if nothing is in it.
  void shrink() {
    if (count_ == 0) free_ring();
  }
  bool has_ring() const { return ring_ != nullptr; }

 private:
  static constexpr uint32_t kFirstCapacity = 16;

  bool grow() {
    const uint32_t capacity = ring_ == nullptr ? kFirstCapacity : 2 * (mask_ + 1);
    auto* bigger = static_cast<SendDesc*>(std::malloc(capacity * sizeof(SendDesc)));
    if (bigger == nullptr) return false;
    for (uint32_t i = 0; i < count_; ++i) bigger[i] = at(i);
    std::free(ring_);
    next_ -= head_;
    head_ = 0;
    ring_ = bigger;
    mask_ = capacity - 1;
    return true;
  }
  void free_ring() {
    std::free(ring_);
    ring_ = nullptr;
    mask_ = head_ = next_ = 0;
  }

  SendDesc* ring_ = nullptr;
  uint32_t mask_ = 0;  ///< capacity - 1
  uint32_t head_ = 0;  ///< running index of the front
  uint32_t next_ = 0;  ///< running index of next()
  uint32_t count_ = 0;
};

}  // namespace vireo::tcp
