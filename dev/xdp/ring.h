// An AF_XDP ring: single producer, single consumer, one of them the kernel; free-running indices.
// Owner: the Xsk that mapped it. Thread: as the queue. Source: Documentation/networking/af_xdp.rst;
// the barriers mirror the kernel's net/xdp/xsk_queue.h.
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

/// Common to both directions.
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
  /// The kernel does not look at this ring until it is woken.
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

/// We produce, the kernel consumes: FILL and TX.
template <class Entry>
class ProducerRing : public Ring<Entry> {
 public:
  ProducerRing() = default;
  explicit ProducerRing(const RingMemory& m) : Ring<Entry>(m) {}

  uint32_t produced() const { return next_; }
  /// Where other processes produce, too, in turn.
  void rejoin() { next_ = std::atomic_ref(*this->producer_).load(std::memory_order_relaxed); }
  Entry& slot(uint32_t ahead) const { return (*this)[next_ + ahead]; }
  /// Entries not yet taken by the kernel.
  uint32_t waiting() const {
    // Pairs with the kernel's release of the consumer: it has read the entries we may overwrite.
    return next_ - std::atomic_ref(*this->consumer_).load(std::memory_order_acquire);
  }
  /// The kernel's index.
  uint32_t taken() const {
    return std::atomic_ref(*this->consumer_).load(std::memory_order_relaxed);
  }
  /// The same as waiting(), by the shared indices alone.
  uint32_t level() const {
    return std::atomic_ref(*this->producer_).load(std::memory_order_relaxed) - taken();
  }
  /// Takes the last entries back. Only if the kernel does not look at the ring.
  void unpublish(uint32_t n) { publish(0U - n); }
  void publish(uint32_t n) {
    next_ += n;
    // Pairs with the kernel's acquire of the producer: entries become visible first.
    std::atomic_ref(*this->producer_).store(next_, std::memory_order_release);
  }

 private:
  uint32_t next_ = 0;
};

/// The kernel produces, we consume: RX and COMPLETION.
template <class Entry>
class ConsumerRing : public Ring<Entry> {
 public:
  ConsumerRing() = default;
  explicit ConsumerRing(const RingMemory& m) : Ring<Entry>(m) {}

  /// Entries ready; reads the shared cache line only when all known entries are consumed.
  uint32_t ready() {
    if (known_ == next_) {
      // Pairs with the kernel's release of the producer: the entries are written.
      known_ = std::atomic_ref(*this->producer_).load(std::memory_order_acquire);
    }
    return known_ - next_;
  }
  /// Entries ready; always reads the shared cache line.
  uint32_t ready_now() {
    known_ = std::atomic_ref(*this->producer_).load(std::memory_order_acquire);
    return known_ - next_;
  }
  /// Like ready_now(), without updating our state.
  uint32_t waiting() const {
    return std::atomic_ref(*this->producer_).load(std::memory_order_relaxed) - next_;
  }
  /// Entries that nobody has consumed, by the shared indices alone.
  uint32_t level() const {
    return std::atomic_ref(*this->producer_).load(std::memory_order_relaxed) -
           std::atomic_ref(*this->consumer_).load(std::memory_order_relaxed);
  }
  uint32_t consumed() const { return next_; }
  /// Where other processes consume, too, in turn.
  void rejoin() {
    known_ = next_ = std::atomic_ref(*this->consumer_).load(std::memory_order_relaxed);
  }
  const Entry& front(uint32_t ahead) const { return (*this)[next_ + ahead]; }
  void release(uint32_t n) {
    next_ += n;
    // Pairs with the kernel's acquire of the consumer: we no longer use the entries.
    std::atomic_ref(*this->consumer_).store(next_, std::memory_order_release);
  }

 private:
  uint32_t next_ = 0;
  uint32_t known_ = 0;
};

}  // namespace vireo::xdp
