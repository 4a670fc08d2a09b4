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
// The ring is taken from the heap at the first append, grows when full, is given back when idle.
// With it come the Scoreboard, all that means something only while something is queued or was until
// a moment ago, and the FIFO of retransmissions. An idle connection has none of it: the queue is
// one pointer, to an empty Scoreboard that all share and nobody writes. Owner: a Tcb. Thread:
// holder of its engine's lock. Source: RFC 2018 §8, RFC 6675 §3, RFC 8985 §5.
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

/// The sender's state between the first byte queued and some time after the last one acknowledged.
/// Its first two lines are what every segment and ACK touches.
struct Scoreboard {
  // The ring behind it.
  uint32_t mask = 0;   ///< capacity - 1
  uint32_t head = 0;   ///< running index of the front
  uint32_t next = 0;   ///< running index of next()
  uint32_t count = 0;  ///< descriptors

  Instant cork_at = Instant::never();
  Instant idle_at = Instant::never();  ///< give the ring back
  Instant pace_at = Instant::never();  ///< the next segment may leave
  StreamOffset snd_sml = 0;            ///< end of the last small segment sent (Minshall)

  // RACK (RFC 8985 §5.2): the delivered transmission that was sent last.
  Instant rack_sent;
  StreamOffset rack_end = 0;
  Duration rack_rtt{};  ///< zero: nothing was delivered selectively yet
  DeliveryRound delivery;
  StreamOffset fack = 0;         ///< highest offset ever SACKed or acknowledged
  StreamOffset dsack_round = 0;  ///< one step of the reordering window until this is acknowledged
  Instant reorder_at;            ///< when the first of Tcb::suspects is to be taken for lost
  uint32_t rack_next = 0;        ///< all first transmissions before it are judged (running index)

  // What to send again: everything that waits is at or behind this.
  uint32_t rtx_index = 0;
  StreamOffset rtx_next = 0;  ///< inside rtx_index, if that was sent again only in part

  uint32_t sacked_count = 0;  ///< descriptors marked kSacked
  uint32_t fifo_head = 0;     ///< of the retransmissions
  uint32_t fifo_count = 0;

  StreamOffset recover = 0;    ///< snd_nxt when recovery began
  StreamOffset cwr_until = 0;  ///< acknowledged beyond this, an ECN echo counts again
  StreamOffset snd_up = 0;     ///< SND.UP: behind the last urgent byte of ours
  Pacer pacer;

  // Tail loss probe (RFC 8985 §7.4).
  StreamOffset tlp_end = 0;  ///< end of what the probe covered, 0: none outstanding
  bool tlp_retransmitted = false;
  StreamOffset tlp_prompt = 0;  ///< the last in flight, up to here, is not held by a delayed ACK

  bool frto = false;  ///< RFC 5682: the timeout may have been spurious

  JumboWatch joined;

  // PRR (RFC 9937 §6).
  uint32_t prr_delivered = 0;
  uint32_t prr_out = 0;
  uint32_t recover_fs = 0;

  // How much of the window was used (RFC 7661 §4.2: pipeACK).
  uint32_t used = 0;          ///< most bytes in flight at once in this round
  StreamOffset used_end = 0;  ///< which ends when this is acknowledged

  // Undo of a spurious episode (RFC 3522, 2883, 5682).
  StreamOffset undo_marker = 0;  ///< snd_una when it began, 0: none
  uint32_t undo_retrans = 0;     ///< retransmissions that no DSACK reported as needless
  uint32_t rtx_stamp = 0;        ///< timestamp of the first retransmission
  bool undo_any = false;         ///< something was sent again in it
  /// Where the first retransmissions began, 0: a DSACK told of it. Only a DSACK of one of these
  /// counts, for the network duplicates segments, too.
  StreamOffset undo_log[16] = {};

  // RFC 7413: the cookie that the SYN is to show.
  uint8_t cookie_bytes = 0;
  uint8_t cookie[16] = {};

  /// Stretches of whole descriptors that are all marked kSacked: what a repeated SACK block need
  /// not walk again.
  struct Run {
    StreamOffset left = 0;
    StreamOffset right = 0;
  };
  Run runs[4];
  uint8_t next_run = 0;

  // Tcb::single_out.
  uint32_t answer_most = 0;  ///< payload of what may go straight to the program, see book_answer()
  wire::ExpectedTcp answer;  ///< what it looks like; if it is not set, only its numbers
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
  /// Everything queued counts as unsent. Requires has_ring().
  void rewind() { board_->next = board_->head; }

  /// To be written only if has_ring(), which it is while anything is queued.
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
  // ---- of a queue that has a ring and nothing in it, or the one frame pushed so
  /// push_back() of all of `p`, whose offset and length are set.
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
  /// All of it was sent.
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
  /// Those behind move up. Requires that none of these or of those was sent, nor has a frame.
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
  /// Not for one that is remembered already. Then those that are not stale fit in the FIFO.
  void remember_retransmission(uint32_t index) {
    if (board_->fifo_count > board_->mask) forget_stale();
    fifo()[(board_->fifo_head + board_->fifo_count++) & board_->mask] = index;
  }
  /// One that is remembered was sent again, or went on: it is the latest.
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
  /// Gives the ring back if nothing is in it.
  void shrink() {
    if (board_->count == 0) free_ring();
  }
  bool has_ring() const { return board_ != &kNoScoreboard; }
  /// False: no memory for it.
  bool want_ring() { return has_ring() || grow(); }

 private:
  // What requests and answers need, in a block of those that malloc keeps at hand; then what a
  // burst needs.
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
