// Maintains the marks of sent descriptors and their sums. A sum counts only outstanding bytes, so
// it changes with the marks, snd_una and snd_nxt.
#include <algorithm>

#include "stack/tcp/recovery.h"

namespace vireo::tcp {

namespace {

constexpr unsigned kSackBudget = 128;  // descriptors marked by one ACK

void count(Tcb& t, uint8_t marks, uint32_t n) {
  if ((marks & kSacked) != 0) t.sacked_out += n;
  if ((marks & kLost) != 0) t.lost_out += n;
  if ((marks & kRetransmitted) != 0) t.retrans_out += n;
  if ((marks & (kLost | kRetransmitted)) == kLost) t.rtx_due += n;
}

void uncount(Tcb& t, uint8_t marks, uint32_t n) {
  if ((marks & kSacked) != 0) t.sacked_out -= n;
  if ((marks & kLost) != 0) t.lost_out -= n;
  if ((marks & kRetransmitted) != 0) t.retrans_out -= n;
  if ((marks & (kLost | kRetransmitted)) == kLost) t.rtx_due -= n;
}

/// Outstanding bytes of a sent descriptor.
uint32_t outstanding(const Tcb& t, const SendDesc& s) {
  return static_cast<uint32_t>(std::min(s.end(), t.snd_nxt) - std::max(s.offset, t.snd_una));
}

void set_marks(Tcb& t, SendDesc& s, uint8_t marks) {
  const uint32_t n = outstanding(t, s);
  uncount(t, s.marks, n);
  s.marks = marks;
  count(t, marks, n);
}

/// Records a descriptor that is acknowledged or SACKed for the first time.
void deliver(Tcb& t, const SendDesc& s, const AckEvent& a, Delivered& d) {
  if (s.retransmits > 0) {
    d.twice = true;
  } else if (!s.is(kWasSacked)) {
    if (s.end() <= t.queue.board().recover) d.original = true;
    if (!d.once || s.sent_at > d.sent_at) d.sent_at = s.sent_at;
    d.once = true;
  }
  if (t.sack_on) rack_delivered(t, s, a);
}

void mark_sacked(Tcb& t, SendDesc& s, const AckEvent& a, Delivered& d) {
  const uint32_t n = outstanding(t, s);
  d.bytes += n;
  d.sacked += n;
  deliver(t, s, a, d);
  set_marks(t, s, kSacked);
  ++t.queue.board().sacked_count;
}

/// Marks the whole descriptors in [left, right), which must be outstanding.
void mark_block(Tcb& t, StreamOffset left, StreamOffset right, unsigned& budget, const AckEvent& a,
                Delivered& d) {
  Scoreboard& b = t.queue.board();
  StreamOffset at = left;
  Scoreboard::Run run{.left = right, .right = left};  // whole descriptors, inside or already known
  while (at < right && budget > 0) {
    StreamOffset stop = right;
    const Scoreboard::Run* known = nullptr;
    for (const Scoreboard::Run& r : b.runs) {
      if (r.left <= at && at < r.right) known = &r;
      if (r.left > at) stop = std::min(stop, r.left);
    }
    if (known != nullptr) {
      run.left = std::min(run.left, known->left);
      run.right = at = known->right;
      continue;
    }
    uint32_t i = t.queue.find(at);
    if (std::max(t.queue[i].offset, t.snd_una) < left) ++i;
    for (; SendQueue::before(i, t.queue.next_index()) && budget > 0; ++i, --budget) {
      SendDesc& s = t.queue[i];
      if (s.offset >= stop || s.end() > right) break;
      if (!s.is(kSacked)) mark_sacked(t, s, a, d);
      run.left = std::min(run.left, s.offset);
      run.right = at = s.end();
    }
    if (budget > 0) at = std::max(at, stop);
  }
  if (run.left >= run.right) return;
  // One entry for this run and the runs that it contains.
  Scoreboard::Run* place = nullptr;
  for (Scoreboard::Run& r : b.runs) {
    if (r.left <= run.left && run.right <= r.right) return;
    if (run.left <= r.left && r.right <= run.right) {
      r = {};
      place = &r;
    }
  }
  if (place == nullptr) place = &b.runs[b.next_run++ % std::size(b.runs)];
  *place = run;
}

/// RFC 2883 §4: the first block is below the ACK or part of the second block.
bool is_dsack(const AckEvent& a, Seq32 ack) {
  const wire::SackBlock& first = a.sack[0];
  if (first.right.at_or_before(ack)) return true;
  return a.sack.size() > 1 && a.sack[1].left.at_or_before(first.left) &&
         first.right.at_or_before(a.sack[1].right);
}

void take_dsack(Tcb& t, const wire::SackBlock& block, Delivered& d) {
  const StreamOffset left = t.snd_offset(block.left);
  const StreamOffset right = t.snd_offset(block.right);
  if (right > t.snd_max || right == 0 || left >= right) return;
  if (left < t.snd_una && t.snd_una - left > std::max<uint64_t>(t.max_wnd, 65535))
    return;  // too old
  ++t.dsack_dups;
  d.dsack = true;
  d.dsack_end = right;
  Scoreboard& b = t.queue.board();
  if (b.undo_marker == 0 || !b.undo_any) return;
  for (StreamOffset& offset : b.undo_log) {
    if (offset == 0 || offset < left || offset >= right) continue;
    offset = 0;
    --b.undo_retrans;
  }
}

}  // namespace

void advance(Tcb& t, const AckEvent& a, Delivered& d) {
  const StreamOffset una = a.ack;
  const bool careful = !t.is_orderly();
  const uint32_t sacked_before = t.sacked_out;
  while (!t.queue.empty()) {
    SendDesc& s = t.queue.front();
    const bool whole = s.end() <= una;
    if (!whole && s.offset >= una) break;
    if (careful || s.is_tainted()) [[unlikely]] {
      // The acknowledged bytes of its outstanding part.
      const StreamOffset to = std::min({s.end(), t.snd_nxt, una});
      const StreamOffset from = std::max(s.offset, t.snd_una);
      if (to > from) uncount(t, s.marks, static_cast<uint32_t>(to - from));
      if (!whole) {
        if (s.retransmits > 0) d.twice = true;
        if (una >= t.snd_nxt) {  // nothing of it is outstanding; reset its marks
          s.marks = 0;
          Scoreboard& b = t.queue.board();
          if (SendQueue::before(t.queue.first(), b.rack_next)) b.rack_next = t.queue.first();
        }
        break;
      }
      if (s.is(kSacked)) {
        --t.queue.board().sacked_count;
      } else {
        deliver(t, s, a, d);
      }
    } else {
      if (!whole) break;
      d.once = true;
      d.sent_at = s.sent_at;
    }
    t.queue.pop_front();
  }
  d.bytes += static_cast<uint32_t>(una - t.snd_una);
  if (t.sack_on) d.bytes -= sacked_before - t.sacked_out;
  t.snd_una = una;
  t.nagle_room = 0;
  if (una > t.snd_nxt) {  // the peer accepted a probe beyond its window
    t.snd_nxt = una;
    while (t.queue.has_next() && t.queue.next().end() <= una) t.queue.pass_next();
  }
}

void take_sack(Tcb& t, const AckEvent& a, Delivered& d) {
  if (!t.sack_on || !t.queue.has_ring()) return;
  unsigned budget = kSackBudget;
  size_t i = 0;
  if (is_dsack(a, t.snd_seq(a.ack))) take_dsack(t, a.sack[i++], d);
  for (; i < a.sack.size(); ++i) {
    const StreamOffset left = t.snd_offset(a.sack[i].left);
    const StreamOffset right = t.snd_offset(a.sack[i].right);
    const StreamOffset end = std::min(right, t.snd_nxt);  // without a window probe's byte
    // Unsigned: an offset before the stream compares as beyond its end.
    if (left < t.snd_una || left >= end || right > t.snd_max || t.queue.empty()) continue;
    mark_block(t, left, end, budget, a, d);
  }
}

void mark_lost(Tcb& t, uint32_t index) {
  SendDesc& s = t.queue[index];
  if (s.waits()) return;
  Scoreboard& b = t.queue.board();
  if (t.rtx_due == 0 || SendQueue::before(index, b.rtx_index)) {
    b.rtx_index = index;
    b.rtx_next = 0;
  }
  set_marks(t, s, static_cast<uint8_t>((s.marks & kWasSacked) | kLost));
}

void mark_retransmitted(Tcb& t, uint32_t index, StreamOffset end, Instant now) {
  Scoreboard& b = t.queue.board();
  SendDesc& s = t.queue[index];
  s.sent_at = now;
  if (s.retransmits < UINT16_MAX) ++s.retransmits;
  if (end < std::min(s.end(), t.snd_nxt)) {  // smaller segments: the rest follows
    if (index == b.rtx_index) b.rtx_next = end;
    return;
  }
  if (s.is(kRetransmitted)) {
    if (t.sack_on) t.queue.renew_retransmission(index);
    return;
  }
  set_marks(t, s, s.marks | kRetransmitted);
  if (t.sack_on) t.queue.remember_retransmission(index);
}

void count_more(Tcb& t, SendDesc& s, uint32_t bytes) {
  // The added bytes were sent once. The mark of the retransmitted probe is removed, or they would
  // be counted twice.
  if (s.is(kRetransmitted) && !s.is(kLost)) {
    t.retrans_out -= outstanding(t, s);
    s.marks = static_cast<uint8_t>(s.marks & ~kRetransmitted);
    Scoreboard& b = t.queue.board();
    if (SendQueue::before(t.queue.next_index(), b.rack_next)) b.rack_next = t.queue.next_index();
  } else if (s.is(kRetransmitted) && t.sack_on) {
    t.queue.renew_retransmission(t.queue.next_index());
  }
  count(t, s.marks, bytes);
}

uint32_t next_lost(Tcb& t, StreamOffset& at) {
  Scoreboard& b = t.queue.board();
  uint32_t i = SendQueue::before(b.rtx_index, t.queue.first()) ? t.queue.first() : b.rtx_index;
  while (!t.queue[i].waits()) ++i;
  if (i != b.rtx_index) {
    b.rtx_index = i;
    b.rtx_next = 0;
  }
  at = std::max({t.queue[i].offset, t.snd_una, b.rtx_next});
  return i;
}

void lose_outstanding(Tcb& t, Instant since) {
  Scoreboard& b = t.queue.board();
  const uint32_t end = t.queue.next_index();
  const bool partly = t.queue.has_next() && t.queue.next().offset < t.snd_nxt;
  b.rack_next = end + (partly ? 1 : 0);
  for (uint32_t i = t.queue.first(); i != end + (partly ? 1 : 0); ++i) {
    SendDesc& s = t.queue[i];
    if (s.is(kSacked)) set_marks(t, s, kWasSacked);
    if (i == t.queue.first() || s.sent_at <= since) {
      mark_lost(t, i);
    } else if (!s.is(kLost | kRetransmitted) && SendQueue::before(i, b.rack_next)) {
      b.rack_next = i;
    }
  }
  b.sacked_count = 0;
  for (Scoreboard::Run& r : b.runs) r = {};
  t.queue.forget_stale();
}

void clear_lost(Tcb& t) {
  Scoreboard& b = t.queue.board();
  if (t.lost_out == 0) return;
  for (uint32_t i = t.queue.first(); t.lost_out > 0; ++i) {
    SendDesc& s = t.queue[i];
    if (!s.is(kLost)) continue;
    set_marks(t, s, static_cast<uint8_t>(s.marks & ~kLost));
    // RACK examines it again.
    if (!s.is(kRetransmitted) && SendQueue::before(i, b.rack_next)) b.rack_next = i;
  }
}

}  // namespace vireo::tcp
