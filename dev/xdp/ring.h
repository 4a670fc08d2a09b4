// One AF_XDP ring: single producer, single consumer, one side ours and one the kernel's, indices
// running free. Owner: the Xsk that mapped it. Thread: as the queue. Source:
// Documentation/networking/af_xdp.rst; the barriers mirror net/xdp/xsk_queue.h of the kernel.
#pragma once

#include <linux/if_xdp.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vireo::xdp {

struct RingMemory {
  void* base = nullptr;
  size_t length = 0;
  xdp_ring_offset at{};
  uint32_t entries = 0;
};

/// What both directions need.
template <class Entry>
class Ring {
 public:
  Ring() = default;
  explicit Ring(const RingMemory& m)
      : producer_(word(m, m.at.producer)),
        consumer_(word(m, m.at.consumer)),
        flags_(word(m, m.at.flags)),
        entries_(reinterpret_cast<Entry*>(static_cast<std::byte*>(m.base) + m.at.desc)),
        mask_(m.entries - 1) {}

  Entry& operator[](uint32_t index) const { return entries_[index & mask_]; }
  uint32_t size() const { return mask_ + 1; }
  /// The kernel sleeps on this ring until it is told.
  bool needs_wakeup() const {
    return (std::atomic_ref(*flags_).load(std::memory_order_relaxed) & XDP_RING_NEED_WAKEUP) != 0;
  }

 protected:
  static uint32_t* word(const RingMemory& m, uint64_t at) {
    return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(m.base) + at);
  }
  uint32_t* producer_ = nullptr;
  uint32_t* consumer_ = nullptr;
  uint32_t* flags_ = nullptr;
  Entry* entries_ = nullptr;
  uint32_t mask_ = 0;
};

/// We fill, the kernel empties: FILL and TX.
template <class Entry>
class ProducerRing : public Ring<Entry> {
 public:
  ProducerRing() = default;
  explicit ProducerRing(const RingMemory& m) : Ring<Entry>(m) {}

  uint32_t produced() const { return next_; }
  Entry& slot(uint32_t ahead) const { return (*this)[next_ + ahead]; }
  /// Entries the kernel has not taken yet.
  uint32_t waiting() const {
    // Pairs with the kernel's release of the consumer: it has read what we may overwrite.
    return next_ - std::atomic_ref(*this->consumer_).load(std::memory_order_acquire);
  }
  void publish(uint32_t n) {
    next_ += n;
    // Pairs with the kernel's acquire of the producer: the entries come first.
    std::atomic_ref(*this->producer_).store(next_, std::memory_order_release);
  }

 private:
  uint32_t next_ = 0;
};

/// The kernel fills, we empty: RX and COMPLETION.
template <class Entry>
class ConsumerRing : public Ring<Entry> {
 public:
  ConsumerRing() = default;
  explicit ConsumerRing(const RingMemory& m) : Ring<Entry>(m) {}

  /// Entries ready, looked up in the shared line only when those known of are used up.
  uint32_t ready() {
    if (known_ == next_) {
      // Pairs with the kernel's release of the producer: the entries are written.
      known_ = std::atomic_ref(*this->producer_).load(std::memory_order_acquire);
    }
    return known_ - next_;
  }
  /// Entries ready by a fresh look.
  uint32_t ready_now() {
    known_ = std::atomic_ref(*this->producer_).load(std::memory_order_acquire);
    return known_ - next_;
  }
  /// As ready_now(), of which nothing is remembered.
  uint32_t waiting() const {
    return std::atomic_ref(*this->producer_).load(std::memory_order_relaxed) - next_;
  }
  uint32_t consumed() const { return next_; }
  const Entry& front(uint32_t ahead) const { return (*this)[next_ + ahead]; }
  void release(uint32_t n) {
    next_ += n;
    // Pairs with the kernel's acquire of the consumer: we are done with the entries.
    std::atomic_ref(*this->consumer_).store(next_, std::memory_order_release);
  }

 private:
  uint32_t next_ = 0;
  uint32_t known_ = 0;
};

}  // namespace vireo::xdp
