// Packet buffers: fixed-size frames of the arena, their metadata, and who owns them.
//
//   frame   |<- headroom ->|<----- length valid bytes ----->|<- tailroom ->|
//           ^frame         ^data() = frame + data_at
//
// A buffer has exactly one owner: the pool, a device RX ring, the engine, a socket queue or a send
// queue. A device that still reads a frame to send holds a second reference; the frame returns to
// the pool when both are dropped. Owner: the engine of the pool. Thread: holder of that engine's
// lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/assert.h"
#include "core/seq.h"

namespace vireo {

class PacketPool;

/// Metadata of one frame: a cache line, with the index of the frame.
struct alignas(64) PacketBuf {
  PacketBuf* next = nullptr;   ///< link of the list it is in (free list, PacketChain)
  std::byte* frame = nullptr;  ///< constant
  PacketPool* pool = nullptr;  ///< where it is returned: its own, or the one it is lent to; null:
                               ///< another process's frame
  StreamOffset offset = 0;     ///< TCP: stream position of the first valid byte
  uint32_t index = 0;          ///< constant: frame number in the pool
  uint32_t sum = 0;          ///< TCP send: 16-bit ones' complement sum of the valid bytes, folded;
                             ///< received: high half of arrival()
  uint16_t data_at = 0;      ///< first valid byte
  uint16_t length = 0;       ///< valid bytes
  uint16_t refs = 0;         ///< 0 = in the pool
  uint16_t device_refs = 0;  ///< of refs, those held by a device that still reads the frame
  int64_t hw_time = 0;       ///< RX timestamp by the device (Queue::stamp()), ns, 0 = none
  uint32_t cookie = 0;       ///< for use by the current owner
  uint32_t arrival_low = 0;

  /// When it was taken from the ring, ns of CLOCK_REALTIME, if the engine noted that. If not, a
  /// time before the engine began to: see Ports::arrival_of().
  int64_t arrival() const { return static_cast<int64_t>(uint64_t{sum} << 32 | arrival_low); }
  void set_arrival(int64_t ns) {
    sum = static_cast<uint32_t>(static_cast<uint64_t>(ns) >> 32);
    arrival_low = static_cast<uint32_t>(ns);
  }
  /// The times at which `p` was received.
  void take_times(const PacketBuf& p) {
    hw_time = p.hw_time;
    set_arrival(p.arrival());
  }

  std::byte* data() { return frame + data_at; }
  const std::byte* data() const { return frame + data_at; }
  std::span<std::byte> bytes() { return {data(), length}; }
  std::span<const std::byte> bytes() const { return {data(), length}; }
};
static_assert(sizeof(PacketBuf) == 64);

/// Bytes of a packet to send. A later reader takes its own reference.
struct PacketSlice {  // no defaults: an array on the stack is not cleared each time
  PacketBuf* packet;
  uint16_t at;  ///< offset from packet->frame
  uint16_t length;
};

/// Frames of one engine. Never allocates after construction.
class PacketPool {
 public:
  static constexpr uint32_t kHeadroom = 256;  ///< start of payload to send: room for any header

  /// Cuts `memory` into frames of `frame_bytes` (a power of two, 2048 or 4096). Metadata goes to
  /// the heap.
  PacketPool(std::span<std::byte> memory, uint32_t frame_bytes);
  /// The same for packet memory that several processes share: only the frames that `owners` gives
  /// us are in the pool. Others may come as received frames.
  PacketPool(std::span<std::byte> memory, uint32_t frame_bytes, const FrameOwners& owners);
  /// Without frames of its own: for frames lent by `lender`.
  explicit PacketPool(PacketPool* lender);
  PacketPool(const PacketPool&) = delete;
  PacketPool& operator=(const PacketPool&) = delete;
  ~PacketPool();

  /// One buffer with refs = 1, data_at = kHeadroom, length = 0; nullptr if none is ready.
  PacketBuf* take() noexcept {
    PacketBuf* p = free_;
    if (p == nullptr) [[unlikely]]
      return nullptr;
    free_ = p->next;
    --free_count_;
    p->next = nullptr;
    p->refs = 1;
    p->data_at = kHeadroom;
    p->length = 0;
    p->hw_time = 0;
    return p;
  }
  /// All free buffers, as a list linked by `next`, not initialized as by take().
  PacketBuf* take_list() noexcept {
    free_count_ = 0;
    return std::exchange(free_, nullptr);
  }
  /// take() for a device to receive into. The last 32nd is reserved for sending: otherwise a
  /// program that reads nothing until it has sent might never be able to send.
  PacketBuf* take_for_rx() noexcept { return rx_count() != 0 ? take() : nullptr; }
  /// Number of buffers that take_for_rx() can give.
  uint32_t rx_count() const { return ready_count() - std::min(ready_count(), size() / 32); }
  /// True if a connection may take a buffer to send. The last eighth is reserved for receiving, as
  /// only ACKs free sent data. A connection with nothing in flight (`has_none`) waits for no ACK
  /// and may use it up to the last 64th.
  bool may_send(bool has_none) const {
    return ready_count() > (has_none ? kept_from_all_ : kept_from_busy_);
  }
  /// Drops one reference; the last one returns the buffer.
  static void drop(PacketBuf* p) noexcept {
    VIREO_DEBUG_ASSERT(p->refs > 0);
    if (--p->refs == 0) p->pool->put(p);
  }

  /// A frame of the memory that was another process's, or nobody's: it is free here from now on.
  void adopt(uint32_t index) noexcept;

  PacketBuf& at(uint32_t index) { return meta_[index]; }
  PacketBuf& at_frame_offset(uint64_t offset) {
    return meta_[offset >> frame_shift_];
  }  ///< offset into memory()
  std::span<std::byte> memory() const { return memory_; }
  uint32_t frame_bytes() const { return 1U << frame_shift_; }
  /// Frames that it was made with.
  uint32_t size() const { return size_; }
  /// Frames of the memory, those of other processes too.
  uint32_t frames() const { return static_cast<uint32_t>(meta_.size()); }
  /// Unused frames.
  uint32_t free_count() const { return free_count_; }
  /// Of these, those that take() can give: without lent spare runs.
  uint32_t ready_count() const { return free_count_ - spare_count_; }
  /// Receive window that one connection may advertise, in frames; kNoShare: no limit. The engine
  /// sets it while the device's receive ring or the pool is nearly used up.
  static constexpr uint32_t kNoShare = UINT32_MAX;
  uint32_t window_share() const { return window_share_; }
  void set_window_share(uint32_t frames) { window_share_ = frames; }

  // ---- runs of adjacent frames, for a device that receives into them

  /// Lends runs of `n` frames (a power of two, of which their first index is a multiple) to `to`,
  /// as far as take_for_rx() would give them. They have refs 0, as in the pool; when used and
  /// dropped, they return to `to`. Walks all frames. @return number of runs; `firsts` has the index
  /// of the first frame of each.
  uint32_t lend(uint32_t n, std::span<uint32_t> firsts, PacketPool& to);
  /// Ends the loan of a run: free frames return now, those in use when they are dropped. The other
  /// pool must not hand out frames of it any more.
  void take_back(uint32_t n, uint32_t first);
  /// Lent runs that their borrower does not use. They count as free: the borrower has keep_ready()
  /// take them back, so that take() need not search them.
  struct Spares {
    uint32_t frames;               ///< in a run
    std::vector<uint32_t> firsts;  ///< as from lend()
    Spares* next = nullptr;        ///< another borrower's
  };
  /// Registers `s` until leave(), when it must be empty.
  void join(Spares& s) { s.next = std::exchange(spares_, &s); }
  void leave(Spares& s);
  /// The borrower added a run to `s`.
  void note_spare(const Spares& s) {
    free_count_ += s.frames;
    spare_count_ += s.frames;
  }
  /// The borrower took a run from `s`.
  void note_used(const Spares& s) {
    free_count_ -= s.frames;
    spare_count_ -= s.frames;
  }
  /// Takes spare runs back until a quarter of the pool is ready, or there are none. A borrower with
  /// spare runs calls it regularly.
  void keep_ready() {
    while (ready_count() < size() / 4 && spare_count_ != 0) [[unlikely]]
      reclaim();
  }
  /// The pool that owns the frames dropped to this one.
  PacketPool& home() { return *home_; }

 private:
  void put(PacketBuf* p) noexcept {
    VIREO_DEBUG_ASSERT(p->device_refs == 0);
    p->next = free_;
    free_ = p;
    ++free_count_;
  }
  [[gnu::noinline]] void reclaim() noexcept;

  std::span<std::byte> memory_;
  uint32_t frame_shift_;
  uint32_t size_ = 0;
  uint32_t free_count_ = 0;
  uint32_t spare_count_ = 0;     ///< of free_count_
  uint32_t kept_from_all_ = 0;   ///< free frames that may_send() reserves: a 64th,
  uint32_t kept_from_busy_ = 0;  ///< an eighth
  uint32_t window_share_ = kNoShare;
  PacketBuf* free_ = nullptr;
  PacketPool* home_ = this;
  Spares* spares_ = nullptr;
  std::vector<PacketBuf> meta_;
};

/// Owns one reference to a buffer; the destructor drops it.
class PacketRef {
 public:
  PacketRef() = default;
  explicit PacketRef(PacketBuf* p) : p_(p) {}
  PacketRef(PacketRef&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  PacketRef& operator=(PacketRef&& o) noexcept {
    if (this != &o) reset(std::exchange(o.p_, nullptr));
    return *this;
  }
  ~PacketRef() { reset(); }

  PacketBuf* get() const { return p_; }
  PacketBuf* operator->() const { return p_; }
  PacketBuf& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  PacketBuf* release() { return std::exchange(p_, nullptr); }
  void reset(PacketBuf* p = nullptr) {
    if (p_ != nullptr) PacketPool::drop(p_);
    p_ = p;
  }

 private:
  PacketBuf* p_ = nullptr;
};

/// Owning FIFO of buffers linked by `next`, with its byte count: a payload, a receive queue.
class PacketChain {
 public:
  PacketChain() = default;
  explicit PacketChain(PacketRef p) { push_back(std::move(p)); }
  PacketChain(PacketChain&& o) noexcept { take(o); }
  PacketChain& operator=(PacketChain&& o) noexcept {
    if (this != &o) {
      clear();
      take(o);
    }
    return *this;
  }
  ~PacketChain() { clear(); }

  bool empty() const { return head_ == nullptr; }
  uint32_t bytes() const { return bytes_; }
  uint32_t buffers() const { return buffers_; }
  PacketBuf* front() const { return head_; }
  PacketBuf* back() const { return tail_; }

  void push_back(PacketRef ref) {
    PacketBuf* p = ref.release();
    p->next = nullptr;
    (tail_ != nullptr ? tail_->next : head_) = p;
    tail_ = p;
    bytes_ += p->length;
    ++buffers_;
  }
  /// push_back() to an empty chain.
  void push_first(PacketRef ref) {
    VIREO_DEBUG_ASSERT(empty());
    PacketBuf* p = ref.release();
    p->next = nullptr;
    head_ = tail_ = p;
    bytes_ = p->length;
    buffers_ = 1;
  }
  /// pop_front() of the only buffer.
  PacketRef pop_only() {
    VIREO_DEBUG_ASSERT(buffers_ == 1);
    PacketBuf* p = std::exchange(head_, nullptr);
    tail_ = nullptr;
    bytes_ = buffers_ = 0;
    p->next = nullptr;
    return PacketRef(p);
  }
  PacketRef pop_front() {
    PacketBuf* p = head_;
    if (p == nullptr) return {};
    head_ = p->next;
    if (head_ == nullptr) tail_ = nullptr;
    bytes_ -= p->length;
    --buffers_;
    p->next = nullptr;
    return PacketRef(p);
  }
  /// Moves all of `o` to the end of this.
  void append(PacketChain&& o) {
    if (o.empty()) return;
    (tail_ != nullptr ? tail_->next : head_) = o.head_;
    tail_ = o.tail_;
    bytes_ += o.bytes_;
    buffers_ += o.buffers_;
    o.head_ = o.tail_ = nullptr;
    o.bytes_ = o.buffers_ = 0;
  }
  /// Appends a copy of `bytes` to the last buffer. False, nothing done: no buffer, no tailroom, or
  /// it is shared.
  bool extend_back(std::span<const std::byte> bytes);
  /// Drops `n` bytes (at most bytes()) from the front, releasing buffers that become empty.
  void trim_front(uint32_t n);
  /// Drops `n` bytes (at most bytes()) from the end.
  void trim_back(uint32_t n);
  void clear() {
    while (head_ != nullptr) pop_front();
  }

 private:
  void take(PacketChain& o) {
    head_ = std::exchange(o.head_, nullptr);
    tail_ = std::exchange(o.tail_, nullptr);
    bytes_ = std::exchange(o.bytes_, 0);
    buffers_ = std::exchange(o.buffers_, 0);
  }
  PacketBuf* head_ = nullptr;
  PacketBuf* tail_ = nullptr;
  uint32_t bytes_ = 0;
  uint32_t buffers_ = 0;
};

}  // namespace vireo
