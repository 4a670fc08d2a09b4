// Data that the program wrote and the peer has not acknowledged: a ring of descriptors in stream
// order, which is also the scoreboard.
//
//   head                    next                      tail
//    |  sent, state in marks |  never sent             |
//    [d0][d1][d2][d3] .......[dn][dn+1] .......... [FIN]
//
// A descriptor is one frame of payload, normally one segment. The FIN has a descriptor without a
// frame, one offset long. Descriptors never move between lists and a frame is never written once
// sent: an ACK inside a descriptor only moves snd_una, a smaller path MTU only makes a Plan
// shorter, and the fate of a transmission is only a mark.
//
// Positions are running indices (they wrap at 2^32 and are compared by distance), so that a cursor
// stays right when the head moves or the ring grows.
// The ring is allocated from the heap at the first append, grows when full and is freed when idle.
// The same block holds the Scoreboard (state that is needed only while data is queued or shortly
// after) and the FIFO of retransmissions. An idle connection has no block: its queue is one pointer
// to a shared, empty, constant Scoreboard. Owner: a Tcb. Thread: holder of its engine's lock.
// Source: RFC 2018 §8, RFC 6675 §3, RFC 8985 §5.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "core/assert.h"
#include "core/clock.h"
#include "core/packet.h"
#include "core/seq.h"
#include "stack/tcp/delivery_rate.h"
#include "stack/tcp/fast_path/jumbo.h"
#include "stack/tcp/pacing.h"
#include "stack/wire/expected.h"

namespace vireo::tcp {

/// State of a sent descriptor. None: the first transmission is in the network.
enum Mark : uint8_t {
  kSacked = 1,  ///< the peer has received it out of order
  kLost = 2,    ///< the only transmission, or the one before the latest retransmission, is lost
  kRetransmitted = 4,  ///< a retransmission is in the network
  kWasSacked = 8,      ///< was SACKed before a timeout cleared the marks
};

struct SendDesc {
  StreamOffset offset = 0;      ///< of the frame's first byte
  PacketBuf* packet = nullptr;  ///< we own one reference; null: the FIN
  Instant sent_at;              ///< of the latest transmission
  uint32_t length = 0;
  uint16_t retransmits = 0;  ///< includes window probes with its bytes
  uint8_t marks = 0;

  StreamOffset end() const { return offset + length; }
  bool is(uint8_t mark) const { return (marks & mark) != 0; }
  /// Marked lost and not sent again.
  bool waits() const { return (marks & (kLost | kRetransmitted)) == kLost; }
  /// An RTT sample from it would be ambiguous (Karn), and so would its order of delivery.
  bool is_tainted() const { return (marks | retransmits) != 0; }
};
static_assert(sizeof(SendDesc) == 32);

/// Sender state from the first byte queued until some time after the last one is acknowledged.
/// Every segment and ACK uses its first two cache lines.
struct Scoreboard {
  // The ring that follows it.
  uint32_t mask = 0;   ///< capacity - 1
  uint32_t head = 0;   ///< running index of the front
  uint32_t next = 0;   ///< running index of next()
  uint32_t count = 0;  ///< descriptors

  Instant cork_at = Instant::never();
  Instant idle_at = Instant::never();  ///< when to free the ring
  Instant pace_at = Instant::never();  ///< earliest time of the next segment
  StreamOffset snd_sml = 0;            ///< end of the last small segment sent (Minshall)

  // RACK (RFC 8985 §5.2): the most recently sent transmission that was delivered.
  Instant rack_sent;
  StreamOffset rack_end = 0;
  Duration rack_rtt{};  ///< zero: none delivered yet
  DeliveryRound delivery;
  StreamOffset fack = 0;         ///< highest offset ever SACKed or acknowledged
  StreamOffset dsack_round = 0;  ///< the reordering window grows once until this is acknowledged
  Instant reorder_at;            ///< if Tcb::suspects: when the first descriptor is marked lost
  uint32_t rack_next = 0;  ///< running index: RACK has decided on all first transmissions before it

  // Next retransmission: all descriptors to send again are at or behind this.
  uint32_t rtx_index = 0;
  StreamOffset rtx_next = 0;  ///< offset inside rtx_index if that was retransmitted only in part

  uint32_t sacked_count = 0;  ///< descriptors marked kSacked
  uint32_t fifo_head = 0;     ///< FIFO of retransmissions
  uint32_t fifo_count = 0;

  StreamOffset recover = 0;    ///< snd_nxt when recovery began
  StreamOffset cwr_until = 0;  ///< an ECN echo counts again once this is acknowledged
  StreamOffset snd_up = 0;     ///< SND.UP: end of our last urgent byte
  Pacer pacer;

  // Tail loss probe (RFC 8985 §7.4).
  StreamOffset tlp_end = 0;  ///< end of the probe's data, 0: none outstanding
  bool tlp_retransmitted = false;
  StreamOffset tlp_prompt = 0;  ///< the ACK of data in flight up to here is not delayed

  bool frto = false;  ///< F-RTO (RFC 5682) is deciding if the timeout was spurious

  JumboWatch joined;

  // PRR (RFC 9937 §6).
  uint32_t prr_delivered = 0;
  uint32_t prr_out = 0;
  uint32_t recover_fs = 0;

  // Used part of the window (RFC 7661 §4.2: pipeACK).
  uint32_t used = 0;          ///< maximum of bytes in flight in this round
  StreamOffset used_end = 0;  ///< the round ends when this is acknowledged

  // Undo of a spurious episode (RFC 3522, 2883, 5682).
  StreamOffset undo_marker = 0;  ///< snd_una when it began, 0: none
  uint32_t undo_retrans = 0;     ///< retransmissions that no DSACK has reported as duplicate
  uint32_t rtx_stamp = 0;        ///< timestamp of the first retransmission
  bool undo_any = false;         ///< data was retransmitted in it
  /// Start offsets of the first retransmissions; 0: reported by a DSACK. Only a DSACK for one of
  /// these counts, as the network duplicates segments, too.
  StreamOffset undo_log[16] = {};

  // RFC 7413: the cookie for the SYN.
  uint8_t cookie_bytes = 0;
  uint8_t cookie[16] = {};

  /// Runs of whole descriptors marked kSacked, so that a repeated SACK block is not walked again.
  struct Run {
    StreamOffset left = 0;
    StreamOffset right = 0;
  };
  Run runs[4];
  uint8_t next_run = 0;

  // For Tcb::single_out.
  uint32_t answer_most = 0;  ///< most payload for the program directly, see book_answer()
  wire::ExpectedTcp answer;  ///< the expected answer; if not set, only its sequence numbers
};
static_assert(std::is_trivially_copyable_v<Scoreboard>);
static_assert(offsetof(Scoreboard, fack) < 128);
inline constexpr Scoreboard kNoScoreboard{};

class SendQueue {
 public:
  SendQueue() = default;
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;
  ~SendQueue() { clear(); }

  bool empty() const { return board_->count == 0; }
  uint32_t count() const { return board_->count; }
  SendDesc& front() { return ring()[board_->head & board_->mask]; }
  SendDesc& back() { return ring()[(board_->head + board_->count - 1) & board_->mask]; }
  SendDesc& at(uint32_t i) { return ring()[(board_->head + i) & board_->mask]; }

  // ---- running indices
  SendDesc& operator[](uint32_t index) { return ring()[index & board_->mask]; }
  uint32_t first() const { return board_->head; }
  uint32_t end() const { return board_->head + board_->count; }
  uint32_t next_index() const { return board_->next; }
  static bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

  /// First descriptor not wholly sent. Requires has_next().
  bool has_next() const { return board_->next != board_->head + board_->count; }
  SendDesc& next() { return ring()[board_->next & board_->mask]; }
  void pass_next() { ++board_->next; }
  /// Marks everything queued as unsent. Requires has_ring().
  void rewind() { board_->next = board_->head; }

  /// May be written only if has_ring(), which is true while anything is queued.
  Scoreboard& board() { return *board_; }
  const Scoreboard& board() const { return *board_; }

  /// Takes over one reference of `p`, null for the FIN. False: no memory for a larger ring.
  bool push_back(StreamOffset offset, PacketBuf* p) {
    if (!has_ring() || board_->count > board_->mask) [[unlikely]] {
      if (!grow()) return false;
    }
    ring()[(board_->head + board_->count) & board_->mask] =
        SendDesc{.offset = offset,
                 .packet = p,
                 .sent_at = {},
                 .length = p != nullptr ? p->length : 1U,
                 .retransmits = 0,
                 .marks = 0};
    ++board_->count;
    return true;
  }
  void pop_front() {
    if (front().packet != nullptr) [[likely]]
      PacketPool::drop(front().packet);
    if (board_->next == board_->head) ++board_->next;
    ++board_->head;
    --board_->count;
  }
  // ---- for a queue with a ring that is empty or holds the one frame of push_single()
  /// As push_back(); the offset and length of `p` are set.
  void push_single(PacketBuf* p) {
    VIREO_DEBUG_ASSERT(has_ring() && empty());
    front() = SendDesc{.offset = p->offset,
                       .packet = p,
                       .sent_at = {},
                       .length = p->length,
                       .retransmits = 0,
                       .marks = 0};
    board_->count = 1;
  }
  /// The frame was sent completely.
  void pass_single(Instant now) {
    front().sent_at = now;
    pass_next();
  }
  /// pop_front(), after pass_single().
  void pop_single() {
    VIREO_DEBUG_ASSERT(board_->count == 1 && board_->next == board_->head + 1);
    PacketPool::drop(front().packet);
    ++board_->head;
    board_->count = 0;
  }
  /// Removes `n` descriptors; those behind move up. Requires that none of them was sent and the
  /// removed ones have no frame.
  void remove(uint32_t index, uint32_t n) {
    for (uint32_t i = index + n; i != end(); ++i) (*this)[i - n] = (*this)[i];
    board_->count -= n;
  }
  /// Index of the descriptor that holds `offset`; requires front().offset <= offset < back().end().
  uint32_t find(StreamOffset offset) {
    uint32_t low = 0;
    uint32_t high = board_->count;
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      (at(middle).offset <= offset ? low : high) = middle;
    }
    return board_->head + low;
  }

  // ---- retransmissions in the order they were sent. An entry is stale once its descriptor is
  // acknowledged, SACKed or waits again.
  /// Not for an index that is in the FIFO already; so the entries that are not stale always fit.
  void remember_retransmission(uint32_t index) {
    if (board_->fifo_count > board_->mask) forget_stale();
    fifo()[(board_->fifo_head + board_->fifo_count++) & board_->mask] = index;
  }
  /// An index of the FIFO was sent again, or its retransmission continued: moves it to the end.
  void renew_retransmission(uint32_t index) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < board_->fifo_count; ++i) {
      const uint32_t other = fifo()[(board_->fifo_head + i) & board_->mask];
      if (other != index) fifo()[(board_->fifo_head + kept++) & board_->mask] = other;
    }
    fifo()[(board_->fifo_head + kept) & board_->mask] = index;
    board_->fifo_count = kept + 1;
  }
  /// The oldest retransmission still in the network, or null. pop_retransmission() removes it.
  SendDesc* oldest_retransmission() {
    for (; board_->fifo_count > 0; pop_retransmission()) {
      const uint32_t index = fifo()[board_->fifo_head & board_->mask];
      if (in_network(index)) return &(*this)[index];
    }
    return nullptr;
  }
  uint32_t oldest_retransmission_index() { return fifo()[board_->fifo_head & board_->mask]; }
  void pop_retransmission() {
    ++board_->fifo_head;
    --board_->fifo_count;
  }
  void forget_stale() {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < board_->fifo_count; ++i) {
      const uint32_t index = fifo()[(board_->fifo_head + i) & board_->mask];
      if (in_network(index)) fifo()[(board_->fifo_head + kept++) & board_->mask] = index;
    }
    board_->fifo_count = kept;
  }

  /// Drops all frames and the ring.
  void clear() {
    while (board_->count > 0) pop_front();
    free_ring();
  }
  /// Frees the ring if it is empty.
  void shrink() {
    if (board_->count == 0) free_ring();
  }
  bool has_ring() const { return board_ != &kNoScoreboard; }
  /// False: no memory for it.
  bool want_ring() { return has_ring() || grow(); }

 private:
  // The first capacity suits request-response traffic, in a block of a size that malloc caches; the
  // second suits a burst.
  static constexpr uint32_t kFirstCapacity = 2;
  static constexpr uint32_t kSecondCapacity = 16;

  // One block: Scoreboard, descriptors, FIFO.
  static constexpr size_t kBoardBytes = (sizeof(Scoreboard) + 63) / 64 * 64;

  SendDesc* ring() {
    return reinterpret_cast<SendDesc*>(reinterpret_cast<std::byte*>(board_) + kBoardBytes);
  }
  uint32_t* fifo() { return reinterpret_cast<uint32_t*>(ring() + board_->mask + 1); }
  bool in_network(uint32_t index) {
    return index - board_->head < board_->count && (*this)[index].is(kRetransmitted);
  }

  bool grow() {
    const uint32_t capacity =
        has_ring() ? std::max(2 * (board_->mask + 1), kSecondCapacity) : kFirstCapacity;
    void* block = std::malloc(kBoardBytes + capacity * (sizeof(SendDesc) + sizeof(uint32_t)));
    if (block == nullptr) return false;
    SendQueue bigger;
    bigger.board_ = new (block) Scoreboard(*board_);
    bigger.board_->mask = capacity - 1;
    for (uint32_t i = first(); i != end(); ++i) bigger[i] = (*this)[i];
    const uint32_t fifo_end = board_->fifo_head + board_->fifo_count;
    for (uint32_t i = board_->fifo_head; i != fifo_end; ++i)
      bigger.fifo()[i & bigger.board_->mask] = fifo()[i & board_->mask];
    std::swap(board_, bigger.board_);
    bigger.free_ring();
    return true;
  }
  void free_ring() {
    if (!has_ring()) return;
    std::free(board_);
    board_ = none();
  }
  static Scoreboard* none() { return const_cast<Scoreboard*>(&kNoScoreboard); }

  Scoreboard* board_ = none();  ///< begin of the block
};

}  // namespace vireo::tcp
