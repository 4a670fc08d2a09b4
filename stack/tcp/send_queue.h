// What the program wrote and the peer has not acknowledged: a ring of descriptors in stream order,
// which is also the scoreboard.
//
//   head                    next                      tail
//    |  sent: marks say how  |  never sent             |
//    [d0][d1][d2][d3] .......[dn][dn+1] .......... [FIN]
//
// A descriptor is one frame of payload, normally one segment; the FIN is one of its own, without a
// frame and one offset long. Descriptors never move between lists and a frame is never written once
// sent: an ACK inside a descriptor is nothing but the Tcb's snd_una, a cut for a smaller path is
// nothing but a shorter Plan, what became of a transmission is nothing but a mark.
//
// Positions are running indices (they wrap at 2^32 and are compared by distance), so that a cursor
// stays right when the head moves or the ring grows.
// The ring is taken from the heap at the first append, doubled when full, given back when idle.
// With it come the Scoreboard, state that means something only while data is outstanding, and the
// FIFO of retransmissions.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: RFC 2018 §8, RFC 6675 §3, RFC 8985 §5.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#include "core/assert.h"
#include "core/clock.h"
#include "core/packet.h"
#include "core/seq.h"

namespace vireo::tcp {

/// What is known of a sent descriptor. None: the first transmission is in the network.
enum Mark : uint8_t {
  kSacked = 1,         ///< the peer holds it, though not in order
  kLost = 2,           ///< the transmission before the latest retransmission, or the only one, is
  kRetransmitted = 4,  ///< a retransmission is in the network
  kWasSacked = 8,      ///< SACKed before a timeout made us forget it
};

struct SendDesc {
  StreamOffset offset = 0;      ///< of the frame's first byte
  PacketBuf* packet = nullptr;  ///< one reference is ours; null: the FIN
  Instant sent_at;              ///< of the latest transmission
  uint32_t length = 0;
  uint16_t retransmits = 0;  ///< window probes with its bytes count too
  uint8_t marks = 0;

  StreamOffset end() const { return offset + length; }
  bool is(uint8_t mark) const { return (marks & mark) != 0; }
  /// Taken for lost and not sent again.
  bool waits() const { return (marks & (kLost | kRetransmitted)) == kLost; }
  /// A round trip measured on it would be ambiguous (Karn), nor does its order tell anything.
  bool is_tainted() const { return (marks | retransmits) != 0; }
};
static_assert(sizeof(SendDesc) == 32);

/// State of loss recovery between the first byte outstanding and the last one acknowledged.
struct Scoreboard {
  // RACK (RFC 8985 §5.2): the delivered transmission that was sent last.
  Instant rack_sent;
  StreamOffset rack_end = 0;
  Duration rack_rtt{};           ///< zero: nothing was delivered selectively yet
  StreamOffset fack = 0;         ///< highest offset ever SACKed or acknowledged
  StreamOffset dsack_round = 0;  ///< one step of the reordering window until this is acknowledged
  Instant reorder_at;            ///< when the first of Tcb::suspects is to be taken for lost
  uint32_t rack_next = 0;        ///< all first transmissions before it are judged (running index)

  // What to send again: everything that waits is at or behind this.
  uint32_t rtx_index = 0;
  StreamOffset rtx_next = 0;  ///< inside rtx_index, if that was sent again only in part

  uint32_t sacked_count = 0;  ///< descriptors marked kSacked

  // Tail loss probe (RFC 8985 §7.4).
  StreamOffset tlp_end = 0;  ///< end of what the probe covered, 0: none outstanding
  bool tlp_retransmitted = false;
  StreamOffset tlp_prompt = 0;  ///< the last in flight, up to here, is not held by a delayed ACK

  bool frto = false;  ///< RFC 5682: the timeout may have been spurious

  // PRR (RFC 9937 §6).
  uint32_t prr_delivered = 0;
  uint32_t prr_out = 0;
  uint32_t recover_fs = 0;

  // Undo of a spurious episode (RFC 3522, 2883, 5682).
  StreamOffset undo_marker = 0;  ///< snd_una when it began, 0: none
  uint32_t undo_retrans = 0;     ///< retransmissions that no DSACK reported as needless
  uint32_t rtx_stamp = 0;        ///< timestamp of the first retransmission
  bool undo_any = false;         ///< something was sent again in it
  /// Where the first retransmissions began, 0: a DSACK told of it. Only a DSACK of one of these
  /// counts, for the network duplicates segments, too.
  StreamOffset undo_log[16] = {};

  /// Stretches of whole descriptors that are all marked kSacked: what a repeated SACK block need
  /// not walk again.
  struct Run {
    StreamOffset left = 0;
    StreamOffset right = 0;
  };
  Run runs[4];
  uint8_t next_run = 0;
};
static_assert(std::is_trivially_copyable_v<Scoreboard>);

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

  // ---- running indices
  SendDesc& operator[](uint32_t index) { return ring_[index & mask_]; }
  uint32_t first() const { return head_; }
  uint32_t end() const { return head_ + count_; }
  uint32_t next_index() const { return next_; }
  static bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

  /// First descriptor not wholly sent. Requires has_next().
  bool has_next() const { return next_ != head_ + count_; }
  SendDesc& next() { return ring_[next_ & mask_]; }
  void pass_next() { ++next_; }

  /// Requires has_ring(), which it is while anything is queued.
  Scoreboard& board() { return *board_; }

  /// Takes over one reference of `p`, null for the FIN. False: no memory for a larger ring.
  bool push_back(StreamOffset offset, PacketBuf* p) {
    if (ring_ == nullptr || count_ > mask_) [[unlikely]] {
      if (!grow()) return false;
    }
    ring_[(head_ + count_) & mask_] = SendDesc{.offset = offset,
                                               .packet = p,
                                               .sent_at = {},
                                               .length = p != nullptr ? p->length : 1U,
                                               .retransmits = 0,
                                               .marks = 0};
    ++count_;
    return true;
  }
  void pop_front() {
    if (front().packet != nullptr) [[likely]]
      PacketPool::drop(front().packet);
    if (next_ == head_) ++next_;
    ++head_;
    --count_;
  }
  /// Index of the descriptor that holds `offset`; requires front().offset <= offset < back().end().
  uint32_t find(StreamOffset offset) {
    uint32_t low = 0;
    uint32_t high = count_;
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      (at(middle).offset <= offset ? low : high) = middle;
    }
    return head_ + low;
  }

  // ---- retransmissions in the order they were sent. An entry is stale once its descriptor is
  // acknowledged, SACKed or waits again.
  /// Not for one that is remembered already. Then those that are not stale fit in the FIFO.
  void remember_retransmission(uint32_t index) {
    if (fifo_count_ > mask_) forget_stale();
    fifo()[(fifo_head_ + fifo_count_++) & mask_] = index;
  }
  /// The oldest retransmission still in the network, or null. pop_retransmission() removes it.
  SendDesc* oldest_retransmission() {
    for (; fifo_count_ > 0; pop_retransmission()) {
      const uint32_t index = fifo()[fifo_head_ & mask_];
      if (in_network(index)) return &(*this)[index];
    }
    return nullptr;
  }
  uint32_t oldest_retransmission_index() { return fifo()[fifo_head_ & mask_]; }
  void pop_retransmission() {
    ++fifo_head_;
    --fifo_count_;
  }
  void forget_stale() {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < fifo_count_; ++i) {
      const uint32_t index = fifo()[(fifo_head_ + i) & mask_];
      if (in_network(index)) fifo()[(fifo_head_ + kept++) & mask_] = index;
    }
    fifo_count_ = kept;
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

  // One block: Scoreboard, descriptors, FIFO.
  static constexpr size_t kBoardBytes = (sizeof(Scoreboard) + 63) / 64 * 64;

  uint32_t* fifo() { return reinterpret_cast<uint32_t*>(ring_ + mask_ + 1); }
  bool in_network(uint32_t index) {
    return index - head_ < count_ && (*this)[index].is(kRetransmitted);
  }

  bool grow() {
    const uint32_t capacity = ring_ == nullptr ? kFirstCapacity : 2 * (mask_ + 1);
    void* block = std::malloc(kBoardBytes + capacity * (sizeof(SendDesc) + sizeof(uint32_t)));
    if (block == nullptr) return false;
    auto* board = new (block) Scoreboard;
    auto* bigger = reinterpret_cast<SendDesc*>(static_cast<std::byte*>(block) + kBoardBytes);
    auto* bigger_fifo = reinterpret_cast<uint32_t*>(bigger + capacity);
    if (ring_ != nullptr) {
      *board = *board_;
      for (uint32_t i = head_; i != head_ + count_; ++i) bigger[i & (capacity - 1)] = (*this)[i];
      for (uint32_t i = fifo_head_; i != fifo_head_ + fifo_count_; ++i)
        bigger_fifo[i & (capacity - 1)] = fifo()[i & mask_];
    }
    std::free(board_);
    board_ = board;
    ring_ = bigger;
    mask_ = capacity - 1;
    return true;
  }
  void free_ring() {
    std::free(board_);
    board_ = nullptr;
    ring_ = nullptr;
    mask_ = head_ = next_ = fifo_head_ = fifo_count_ = 0;
  }

  SendDesc* ring_ = nullptr;
  Scoreboard* board_ = nullptr;  ///< begin of the block
  uint32_t mask_ = 0;            ///< capacity - 1
  uint32_t head_ = 0;            ///< running index of the front
  uint32_t next_ = 0;            ///< running index of next()
  uint32_t count_ = 0;
  uint32_t fifo_head_ = 0;
  uint32_t fifo_count_ = 0;
};

}  // namespace vireo::tcp
