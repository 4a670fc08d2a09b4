// Hierarchical timing wheel: 4 levels of 256 slots, tick 4.096 us, spans 1.05 ms / 268 ms / 68.7 s
// / 4.9 h.
//
// One node per owner, lazy: a later deadline is only stored; the node is visited at its old place
// and then moved. When the time of a slot of any level has come, the whole slot is spliced to the
// pending list. Visiting a pending node fires it if it is due, and places it again if not. So a
// slot of a million nodes costs no more per advance() than the work limit, of which a node placed
// again takes an eighth, since due nodes may be behind it. Never fires early; late by at most a
// tick plus what the limit leaves over. Owner: one engine. Thread: holder of its lock. Time is
// passed in.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/assert.h"
#include "core/clock.h"

namespace vireo {

/// A base class or member; it must not be moved or destroyed while armed.
class WheelNode {
 public:
  WheelNode() = default;
  WheelNode(const WheelNode&) = delete;
  WheelNode& operator=(const WheelNode&) = delete;

  /// Earliest time at which it fires; never() if it is not armed.
  Instant deadline() const noexcept { return deadline_; }
  /// True while the node is in the wheel. If so, cancel() it before it is destroyed.
  bool is_linked() const noexcept { return next_ != nullptr; }

 private:
  friend class Wheel;
  WheelNode* next_ = nullptr;
  WheelNode* prev_ = nullptr;
  Instant deadline_ = Instant::never();
  uint64_t visit_ = 0;  ///< tick of the next visit; not after the deadline's
};

class Wheel {
 public:
  static constexpr unsigned kLooksPerFired = 8;
  static constexpr unsigned kTickShift = 12;  ///< nanoseconds per tick, log 2
  static constexpr Duration kTick = Duration::ns(1 << kTickShift);

  explicit Wheel(Instant now) noexcept : tick_(floor_tick(now)) {
    for (WheelNode& head : slots_) make_empty(head);
    make_empty(pending_);
    make_empty(visiting_);
  }
  Wheel(const Wheel&) = delete;
  Wheel& operator=(const Wheel&) = delete;

  /// Sets when `n` fires; Instant::never(): not at all. One store, unless it is sooner than the
  /// node's next visit.
  void arm(WheelNode& n, Instant deadline) noexcept {
    n.deadline_ = deadline;
    if (n.is_linked()) {
      // Later than its next visit, or already pending: the visit will read the deadline.
      if (ceil_tick(deadline) >= n.visit_ || n.visit_ <= tick_) [[likely]]
        return;
      unlink(n);
    } else if (deadline.is_never()) {
      return;
    }
    place(n);
  }

  /// Removes `n` now; required before it is destroyed. (To stop a timer, arm(n, never()) is
  /// cheaper.)
  void cancel(WheelNode& n) noexcept {
    n.deadline_ = Instant::never();
    if (n.is_linked()) unlink(n);
  }

  /// Moves time to `now` and calls fn(WheelNode&) for due nodes, each at most once; the node is
  /// unlinked when fn runs and may be armed again. Visits at most `work` nodes, of which one that
  /// fires counts as eight, if that many are left; the rest is done in the next call. The order of
  /// nodes that become due in one call is deterministic but not that of their deadlines. @return
  /// number fired.
  template <class F>
  unsigned advance(Instant now, uint64_t work, F&& fn) noexcept {
    const uint64_t t = floor_tick(now);
    if (t > tick_) collect(t);
    if (is_empty(pending_)) [[likely]]
      return 0;
    splice(visiting_, pending_);  // overdue nodes that fn arms are for the next call
    unsigned fired = 0;
    while (work > 0 && !is_empty(visiting_)) {
      WheelNode& n = *visiting_.next_;
      remove(n);
      --work;
      if (n.deadline_.is_never()) continue;
      if (ceil_tick(n.deadline_) > tick_) {
        place(n);
        continue;
      }
      n.deadline_ = Instant::never();
      ++fired;
      work -= std::min<uint64_t>(work, kLooksPerFired - 1);
      fn(n);
    }
    if (!is_empty(visiting_)) [[unlikely]]
      splice_front(pending_, visiting_);
    return fired;
  }

  /// When advance() has work next: at or before the earliest deadline, never after it. never() if
  /// idle.
  Instant next_deadline() const noexcept {
    if (!is_empty(pending_)) return from_tick(tick_);
    return first_visit_ == kNoVisit ? Instant::never() : from_tick(first_visit_);
  }

  /// How long the nodes that advance() left over have been pending.
  Duration backlog() const noexcept {
    return is_empty(pending_) ? Duration{} : time() - from_tick(pending_.next_->visit_);
  }

  /// The last time given to advance(), in whole ticks.
  Instant time() const noexcept { return from_tick(tick_); }

 private:
  static constexpr unsigned kLevels = 4;
  static constexpr unsigned kSlotBits = 8;
  static constexpr unsigned kSlots = 1U << kSlotBits;
  static constexpr uint64_t kSpan = uint64_t{1} << (kSlotBits * kLevels);

  static constexpr uint64_t kNoVisit = ~uint64_t{0};

  static uint64_t floor_tick(Instant t) noexcept {
    return t.ns() <= 0 ? 0 : static_cast<uint64_t>(t.ns()) >> kTickShift;
  }
  static uint64_t ceil_tick(Instant t) noexcept {
    constexpr uint64_t kRound = (uint64_t{1} << kTickShift) - 1;
    return t.ns() <= 0 ? 0 : (static_cast<uint64_t>(t.ns()) + kRound) >> kTickShift;
  }
  static Instant from_tick(uint64_t tick) noexcept {
    return Instant::from_ns(static_cast<int64_t>(tick << kTickShift));
  }

  // Circular lists: the head of an empty list points to itself.
  static void make_empty(WheelNode& head) noexcept { head.next_ = head.prev_ = &head; }
  static bool is_empty(const WheelNode& head) noexcept { return head.next_ == &head; }
  static void push_back(WheelNode& head, WheelNode& n) noexcept {
    n.next_ = &head;
    n.prev_ = head.prev_;
    head.prev_->next_ = &n;
    head.prev_ = &n;
  }
  static void remove(WheelNode& n) noexcept {
    n.prev_->next_ = n.next_;
    n.next_->prev_ = n.prev_;
    n.next_ = n.prev_ = nullptr;
  }
  /// Moves all of `from` to the end of `to`.
  static void splice(WheelNode& to, WheelNode& from) noexcept {
    from.next_->prev_ = to.prev_;
    to.prev_->next_ = from.next_;
    from.prev_->next_ = &to;
    to.prev_ = from.prev_;
    make_empty(from);
  }
  static void splice_front(WheelNode& to, WheelNode& from) noexcept {
    from.prev_->next_ = to.next_;
    to.next_->prev_ = from.prev_;
    from.next_->prev_ = &to;
    to.next_ = from.next_;
    make_empty(from);
  }

  /// Links an unlinked node at the place of its deadline.
  void place(WheelNode& n) noexcept {
    uint64_t at = ceil_tick(n.deadline_);
    if (at <= tick_) {
      n.visit_ = tick_;
      push_back(pending_, n);
      return;
    }
    at = std::min(at, tick_ + kSpan - 1);  // beyond the span: visited again there
    const unsigned level =
        static_cast<unsigned>(63 - std::countl_zero((at - tick_) | 1)) / kSlotBits;
    const unsigned shift = kSlotBits * level;
    // The unit (at >> shift) is 1 to 256 ahead of the current one, so each slot holds nodes of one
    // turn only.
    const unsigned slot = level * kSlots + static_cast<uint8_t>(at >> shift);
    n.visit_ = at >> shift << shift;
    first_visit_ = std::min(first_visit_, n.visit_);
    push_back(slots_[slot], n);
    occupied_[slot / 64] |= uint64_t{1} << (slot % 64);
    words_ |= 1U << slot / 64;
  }

  void unlink(WheelNode& n) noexcept {
    WheelNode* const head = n.next_;
    const bool was_last = head == n.prev_;
    remove(n);
    // The only neighbour of the last node is the head; only heads of slots have a bit.
    if (was_last && head >= slots_.data() && head < slots_.data() + slots_.size()) {
      const auto slot = static_cast<unsigned>(head - slots_.data());
      note_empty(slot);
      if (n.visit_ == first_visit_) first_visit_ = find_first_visit();
    }
  }

  void note_empty(unsigned slot) noexcept {
    occupied_[slot / 64] &= ~(uint64_t{1} << (slot % 64));
    if (occupied_[slot / 64] == 0) words_ &= ~(1U << slot / 64);
  }

  uint64_t find_first_visit() const noexcept {
    uint64_t first = kNoVisit;
    for (unsigned level = 0; level < kLevels; ++level) {
      const unsigned shift = kSlotBits * level;
      const unsigned distance = next_occupied(level, static_cast<uint8_t>(tick_ >> shift));
      if (distance != 0) first = std::min(first, ((tick_ >> shift) + distance) << shift);
    }
    return first;
  }

  /// Distance, 1 to 256, from `index` to the next slot of `level` with nodes, cyclic; 0 if none.
  unsigned next_occupied(unsigned level, unsigned index) const noexcept {
    constexpr unsigned kWords = kSlots / 64;
    if ((words_ >> level * kWords & ((1U << kWords) - 1)) == 0) return 0;
    const uint64_t* words = &occupied_[level * kWords];
    const unsigned from = (index + 1) % kSlots;
    for (unsigned i = 0; i <= kWords; ++i) {
      const unsigned w = (from / 64 + i) % kWords;
      uint64_t bits = words[w];
      if (i == 0) bits &= ~uint64_t{0} << (from % 64);
      if (i == kWords) bits &= ~(~uint64_t{0} << (from % 64));
      if (bits != 0) {
        const unsigned slot = w * 64 + static_cast<unsigned>(std::countr_zero(bits));
        return (slot - from) % kSlots + 1;
      }
    }
    return 0;
  }

  /// Sets the time to tick `t`, and moves every slot passed to the pending list.
  void collect(uint64_t t) noexcept {
    if (t < first_visit_) [[likely]] {
      tick_ = t;
      return;
    }
    for (unsigned level = 0; level < kLevels; ++level) {
      const unsigned shift = kSlotBits * level;
      uint64_t unit = tick_ >> shift;
      uint64_t left = std::min<uint64_t>((t >> shift) - unit, kSlots);
      if (left == 0) break;  // higher units have not turned either
      while (true) {
        const unsigned distance = next_occupied(level, static_cast<uint8_t>(unit));
        if (distance == 0 || distance > left) break;
        unit += distance;
        left -= distance;
        const unsigned slot = level * kSlots + static_cast<uint8_t>(unit);
        splice(pending_, slots_[slot]);
        note_empty(slot);
      }
    }
    tick_ = t;
    first_visit_ = find_first_visit();
  }

  uint64_t tick_;                    ///< slots up to and including this tick were collected
  uint64_t first_visit_ = kNoVisit;  ///< the smallest visit_ of the nodes in slots
  std::array<uint64_t, kLevels * kSlots / 64> occupied_{};
  uint32_t words_ = 0;  ///< which words of occupied_ are not zero
  WheelNode pending_;   ///< head: nodes to visit
  WheelNode visiting_;  ///< head: nodes of the running advance()
  std::array<WheelNode, kLevels * kSlots> slots_;
};

}  // namespace vireo
