// The SACK scoreboard against a plain list of pieces that is walked from end to end for every
// answer: what is marked, the pipe (RFC 6675 §4), the bytes lost, what to send again next, what a
// timeout forgets (RFC 2018 §8), which transmission RACK takes for lost (RFC 8985 §6.2 step 5).
#include <algorithm>
#include <vector>

#include "stack/tcp/recovery.h"
#include "stack/tcp/tcb.h"
#include "tests/fuzz/tcp/bytes.h"
#include "tests/fuzz/tcp/fuzzers.h"

namespace vireo::fuzz {

namespace {

using namespace tcp;

constexpr uint32_t kFrameBytes = 2048;
constexpr uint32_t kFrames = 512;
constexpr unsigned kMaxSteps = 600;
/// Descriptors that one ACK marks for certain, with four blocks over all of them.
constexpr size_t kOneAck = 32;

/// A descriptor as the model has it.
struct Piece {
  StreamOffset begin;
  StreamOffset end;
  Instant sent_at;
  unsigned transmissions = 0;  ///< beyond the first
  bool sacked = false;
  bool lost = false;    ///< the transmission before the retransmission, or the only one
  bool resent = false;  ///< a retransmission is in the network
  bool was_sacked = false;
  StreamOffset again = 0;  ///< sent again up to here, if only in part

  bool waits() const { return lost && !resent; }
};

class Run {
 public:
  Run(const uint8_t* data, size_t size, PacketPool& pool) : in_(data, size), pool_(pool) {
    t_.pool = &pool_;
    t_.state = State::kEstablished;
    t_.iss = Seq32(in_.pick(kIss));
    t_.snd_una = t_.snd_nxt = t_.snd_max = t_.snd_end = una_ = nxt_ = 1;
    t_.max_wnd = 1 << 20;
    t_.mss = 40;
    const uint8_t bits = in_.u8();
    t_.sack_on = (bits & 7) != 0;
    t_.ts_on = (bits & 8) != 0;
    most_ = (bits & 16) != 0 ? 400 : kOneAck;
    if ((bits & 32) != 0) t_.rtt.sample(Duration::ms(4), Duration::ms(200), Duration::s(120));
  }

  void run() {
    for (unsigned i = 0; i < kMaxSteps && !in_.empty(); ++i) {
      step();
      compare();
    }
    t_.queue.clear();
  }

 private:
  void step() {
    switch (in_.u8() % 16) {
      case 0:
      case 1:
        return write(1 + in_.below(most_ > kOneAck ? 120 : 12));
      case 2:
      case 3:
      case 4:
        return send(1 + in_.below(most_ > kOneAck ? 120 : 12));
      case 5:
      case 6:
      case 7:
      case 8:
        return acknowledge();
      case 9:
        return retransmit(1 + in_.below(6));
      case 10:
        now_ = now_ + Duration::us(in_.u16());
        return;
      case 11:
        return time_out();
      case 12:
        return rare();
      case 13:
        return detect_loss();
      case 14:
        return duplicate_acks();
      case 15:
        if (!pieces_.empty() || in_.u8() % 4 != 0) return;
        t_.queue.shrink();
        return;
    }
  }

  // ---- what the sender does

  void write(uint32_t count) {
    const bool fin = in_.u8() % 64 == 0;
    for (; count > 0 && pieces_.size() < most_ && !fin_; --count) {
      const bool last = fin && count == 1;
      PacketBuf* b = nullptr;
      if (!last) {
        b = pool_.take();
        require(b != nullptr, "the pool is smaller than the send queue");
        b->length = static_cast<uint16_t>(1 + in_.below(t_.mss));
      }
      require(t_.queue.push_back(t_.snd_end, b), "no memory");
      const StreamOffset end = t_.snd_end + (last ? 1 : b->length);
      pieces_.push_back({.begin = t_.snd_end, .end = end, .sent_at = {}});
      if (!last) t_.snd_end = end;
      fin_ = last;
    }
    t_.fin_queued = fin_;
  }

  /// As sent() commits data: `count` segments, some of them cut.
  void send(uint32_t count) {
    for (; count > 0 && t_.queue.has_next(); --count) {
      SendDesc& d = t_.queue.next();
      const auto left = static_cast<uint32_t>(d.end() - nxt_);
      const uint32_t n = in_.u8() % 16 == 0 ? 1 + in_.below(left) : left;
      Piece& p = piece(d.offset);
      d.sent_at = p.sent_at = now_;
      if (nxt_ < t_.snd_max) {
        ++d.retransmits;
        ++p.transmissions;
      }
      if (d.marks != 0) count_more(t_, d, n);
      // A tail probe's original may be given up for what joins it: the pipe below says if it was.
      if (p.resent && !p.lost) p.resent = d.is(kRetransmitted);
      if (n == left) t_.queue.pass_next();
      nxt_ += n;
      t_.snd_nxt = nxt_;
      t_.snd_max = std::max(t_.snd_max, nxt_);
    }
  }

  void retransmit(uint32_t count) {
    for (; count > 0 && t_.rtx_due > 0; --count) {
      StreamOffset at = 0;
      const uint32_t index = next_lost(t_, at);
      Piece& p = piece(t_.queue[index].offset);
      const auto left = static_cast<uint32_t>(std::min(p.end, nxt_) - at);
      const uint32_t n = in_.u8() % 8 == 0 ? 1 + in_.below(left) : left;
      mark_retransmitted(t_, index, at + n, now_);
      note_retransmission(t_, at, n, now_);
      ++noted_;
      p.sent_at = now_;
      ++p.transmissions;
      if (n < left) {
        p.again = at + n;
      } else {
        p.resent = true;
      }
    }
  }

  void rare() {
    switch (in_.u8() % 8) {
      case 0:
        return probe_window();
      case 1:
        return probe_tail();
      case 2:  // an episode begins, to be undone if all of it was needless
        if (!t_.queue.has_ring()) return;
        t_.queue.board().undo_marker = una_;
        t_.queue.board().undo_retrans = 0;
        t_.queue.board().undo_any = false;
        for (StreamOffset& o : t_.queue.board().undo_log) o = 0;
        noted_ = 0;
        return;
      case 3:  // undone
        if (!t_.queue.has_ring()) return;
        clear_lost(t_);
        for (Piece& p : pieces_) p.lost = false;
        return;
      case 4:
        return smaller_path();
      case 5:
        t_.recovery = in_.flag() ? Recovery::kFast : Recovery::kOpen;
        return;
      case 6:
        t_.reo_wnd_mult = static_cast<uint8_t>(1 + in_.below(5));
        t_.reord_seen = in_.u8() & 1;
        return;
      default:
        return;
    }
  }

  /// One byte beyond the window: not outstanding, but may be acknowledged.
  void probe_window() {
    if (!t_.queue.has_next() || t_.snd_max > nxt_) return;
    ++t_.queue.next().retransmits;
    ++piece(t_.queue.next().offset).transmissions;
    t_.snd_max = nxt_ + 1;
  }

  /// The last that was sent once more, though nothing says that it is lost.
  void probe_tail() {
    if (outstanding() == 0) return;
    const uint32_t index = t_.queue.find(nxt_ - 1);
    Piece& p = piece(t_.queue[index].offset);
    if (p.sacked || p.waits()) return;
    mark_retransmitted(t_, index, std::min(p.end, nxt_), now_);
    note_retransmission(t_, p.begin, 1, now_);
    ++noted_;
    p.sent_at = now_;
    ++p.transmissions;
    p.resent = true;
  }

  void smaller_path() {
    if (outstanding() == 0) return;
    const auto mss = t_.mss;
    t_.mss = static_cast<uint16_t>(1 + in_.below(mss));
    lose_oversized(t_, now_);
    for (Piece& p : pieces_)
      if (p.begin < nxt_ && p.end - p.begin > t_.mss && !p.sacked) lose(p);
    t_.mss = mss;
  }

  void time_out() {
    if (outstanding() == 0) return;
    const Instant since = now_ + Duration::us(-int64_t{in_.u16()});
    lose_outstanding(t_, since);
    bool first = true;
    for (Piece& p : pieces_) {
      if (p.begin >= nxt_) break;
      if (p.sacked) {
        p.sacked = p.lost = p.resent = false;
        p.was_sacked = true;
      }
      if (first || p.sent_at <= since) lose(p);
      first = false;
    }
  }

  // ---- what arrives

  /// An offset near something: borders of descriptors are the rule, anything else the exception.
  StreamOffset somewhere(StreamOffset from, StreamOffset to) {
    const uint16_t x = in_.u16();
    StreamOffset at = from + (to > from ? x % (to - from + 1) : 0);
    if ((x & 0x7000) != 0)
      for (const Piece& p : pieces_)
        if (p.begin <= at && at < p.end) at = p.begin;
    return std::clamp(at, from, to);
  }

  void acknowledge() {
    if (!t_.queue.has_ring() || t_.queue.empty()) return;
    AckEvent a;
    a.now = now_;
    const uint8_t bits = in_.u8();
    a.ack = (bits & 3) == 0 ? somewhere(una_, t_.snd_max) : una_;
    if ((bits & 4) != 0) a.ack = std::min(a.ack, una_ + 8);
    a.has_ts = t_.ts_on;
    if (a.has_ts) a.ts_echo = timestamp(t_, now_ + Duration::us(-int64_t{in_.u16()} * 64));
    wire::SackBlock blocks[4];
    const unsigned n = (bits >> 3) % 5;
    for (unsigned i = 0; i < n; ++i) {
      StreamOffset left = somewhere(a.ack + 1, t_.snd_max);
      StreamOffset right = somewhere(left, t_.snd_max);
      if (in_.u8() % 32 == 0) {  // a lie or a duplicate
        left += in_.u16();
        right = left + in_.u16();
        if (in_.flag()) left -= 65535;
      }
      blocks[i] = {t_.snd_seq(left), t_.snd_seq(right)};
    }
    a.sack = {blocks, n};
    take(a);
  }

  void take(const AckEvent& a) {
    const uint64_t before = unknown_to_peer();
    const uint64_t sacked_before = sum(&Piece::sacked);
    const StreamOffset una_before = una_;
    const uint64_t probe = a.ack > nxt_ ? a.ack - nxt_ : 0;
    model_ack(a.ack);
    const uint64_t sacked_mid = sum(&Piece::sacked);
    bool dsack = false;
    if (t_.sack_on) dsack = model_sack(a);
    Delivered d;
    if (a.ack > una_before) advance(t_, a, d);
    const uint32_t runs = t_.queue.has_ring() ? 1 : 0;
    take_sack(t_, a, d);
    if (runs != 0 && t_.sack_on)  // what did not fit in the budget comes with the next ACKs
      for (size_t left = 4 * pieces_.size() / 128; left > 0; --left) {
        AckEvent again = a;
        Delivered more;
        take_sack(t_, again, more);
        d.bytes += more.bytes;
        d.sacked += more.sacked;
      }
    if (t_.sack_on) {
      require(d.bytes == before - unknown_to_peer() + probe, "delivered bytes");
      require(d.sacked == sum(&Piece::sacked) - sacked_mid, "bytes delivered out of order");
      require(d.dsack == dsack, "DSACK or not");
    } else {
      require(d.bytes == una_ - una_before && d.sacked == 0, "delivered bytes without SACK");
    }
    require(sacked_before >= sacked_mid, "the model");
    if (t_.sack_on && t_.queue.has_ring() && !t_.queue.empty()) detect_loss();
  }

  void model_ack(StreamOffset ack) {
    una_ = ack;
    std::erase_if(pieces_, [ack](const Piece& p) { return p.end <= ack; });
    if (!pieces_.empty() && una_ >= nxt_) {  // nothing of it is outstanding
      Piece& p = pieces_.front();
      if (p.begin < una_) p.sacked = p.lost = p.resent = p.was_sacked = false;
    }
    nxt_ = std::max(nxt_, una_);
  }

  /// @return true: the first block tells of a duplicate.
  bool model_sack(const AckEvent& a) {
    bool dsack = false;
    for (size_t i = 0; i < a.sack.size(); ++i) {
      const Seq32 ack = t_.iss + static_cast<uint32_t>(a.ack);
      const wire::SackBlock& b = a.sack[i];
      const auto place = [&](Seq32 s) { return static_cast<int64_t>(una_) + (s - ack); };
      const int64_t left = place(b.left);
      const int64_t right = place(b.right);
      const auto in_second = [&] {
        return a.sack.size() > 1 && b.left - a.sack[1].left >= 0 && a.sack[1].right - b.right >= 0;
      };
      if (i == 0 && (right <= static_cast<int64_t>(una_) || in_second())) {
        // Of this stream, and not older than a window (RFC 2883 §4; Linux's bound).
        const int64_t oldest = static_cast<int64_t>(una_) - int64_t{t_.max_wnd};
        dsack = left < right && right > 0 && right <= static_cast<int64_t>(t_.snd_max) &&
                left >= oldest && left >= 0;
        continue;
      }
      if (left < static_cast<int64_t>(una_) || right > static_cast<int64_t>(t_.snd_max)) continue;
      for (Piece& p : pieces_) {
        const StreamOffset from = std::max(p.begin, una_);
        if (p.end > nxt_ || static_cast<int64_t>(from) < left ||
            static_cast<int64_t>(p.end) > right || p.sacked)
          continue;
        p.sacked = true;
        p.lost = p.resent = p.was_sacked = false;
      }
    }
    return dsack;
  }

  /// Without SACK: the front is lost after three duplicates.
  void duplicate_acks() {
    if (t_.sack_on || outstanding() == 0) return;
    mark_lost(t_, t_.queue.first());
    lose(pieces_.front());
  }

  /// RFC 8985 §6.2 step 5 over every transmission. Its sorted list is a ring and a FIFO here: what
  /// stands out of its order there may be judged later, never wrongly.
  void detect_loss() {
    if (!t_.sack_on || !t_.queue.has_ring() || t_.queue.empty()) return;
    const Scoreboard& b = t_.queue.board();
    const bool exact = in_order();
    const Duration patience = rack_patience(t_);
    const bool known = b.rack_rtt > Duration{} && outstanding() > 0;
    std::vector<bool> late;
    bool suspects = false;
    Instant reorder_at;
    for (const Piece& p : pieces_) {
      const bool judged = known && p.begin < nxt_ && !p.sacked && !p.waits();
      const bool older = p.sent_at < b.rack_sent ||
                         (p.sent_at == b.rack_sent && p.transmissions == 0 && p.end < b.rack_end);
      const bool over = p.sent_at + patience <= now_;
      late.push_back(judged && older && over);
      if (!judged || !older || over) continue;
      reorder_at = suspects ? std::min(reorder_at, p.sent_at + patience) : p.sent_at + patience;
      suspects = true;
    }
    rack_detect_loss(t_, now_);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const bool marked = !pieces_[i].waits() && t_.queue.at(static_cast<uint32_t>(i)).waits();
      require(!marked || late[i], "RACK takes for lost what may be on its way");
      require(!exact || !late[i] || marked, "RACK overlooks a loss");
      if (marked) lose(pieces_[i]);
    }
    if (!exact) return;
    require(t_.suspects == suspects, "something to look at again, or not");
    require(!suspects || b.reorder_at == reorder_at, "when to look again");
  }

  // ---- the model's answers

  static void lose(Piece& p) {
    if (p.waits()) return;
    p.lost = true;
    p.resent = false;
  }

  uint64_t outstanding() const { return nxt_ - una_; }

  uint32_t bytes(const Piece& p) const {
    const StreamOffset from = std::max(p.begin, una_);
    const StreamOffset to = std::min(p.end, nxt_);
    return to > from ? static_cast<uint32_t>(to - from) : 0;
  }

  uint64_t sum(bool Piece::* mark) const {
    uint64_t n = 0;
    for (const Piece& p : pieces_) n += p.*mark ? bytes(p) : 0;
    return n;
  }

  /// Outstanding bytes that no ACK told of.
  uint64_t unknown_to_peer() const { return outstanding() - sum(&Piece::sacked); }

  /// Whether first transmissions lie in the ring as they were sent. (Retransmissions always do in
  /// their FIFO.)
  bool in_order() const {
    for (const Piece& p : pieces_) {
      if (p.begin >= nxt_) break;
      if (!p.sacked && !p.lost && !p.resent && p.transmissions > 0) return false;
    }
    return true;
  }

  Piece& piece(StreamOffset begin) {
    for (Piece& p : pieces_)
      if (p.begin == begin) return p;
    require(false, "a descriptor that the model has not");
    std::abort();
  }

  void compare() {
    require(t_.snd_una == una_ && t_.snd_nxt == nxt_, "una or nxt");
    require(t_.queue.count() == pieces_.size(), "the count of descriptors");
    uint64_t pipe = 0;
    uint64_t due = 0;
    uint32_t sacked_count = 0;
    StreamOffset highest = una_;
    const Piece* next = nullptr;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& p = pieces_[i];
      const SendDesc& d = t_.queue.at(static_cast<uint32_t>(i));
      require(d.offset == p.begin && d.end() == p.end, "a descriptor's place");
      require(d.is(kSacked) == p.sacked && d.is(kLost) == p.lost &&
                  d.is(kRetransmitted) == p.resent && d.is(kWasSacked) == p.was_sacked,
              "marks");
      require(p.begin >= nxt_ || d.sent_at == p.sent_at, "when it was sent");
      if (p.sacked) {
        ++sacked_count;
        highest = p.end;
      }
      if (p.waits()) due += bytes(p);
      if (p.waits() && next == nullptr) next = &p;
      // RFC 6675 §4, SetPipe(): once if it is not lost, once if it was sent again.
      if (!p.sacked) pipe += (p.lost ? 0 : bytes(p)) + (p.resent ? bytes(p) : 0);
    }
    require(t_.in_flight() == pipe, "the pipe");
    require(t_.sacked_out == sum(&Piece::sacked), "bytes SACKed");
    require(t_.lost_out == sum(&Piece::lost), "bytes lost");
    require(t_.retrans_out == sum(&Piece::resent), "bytes sent again");
    require(t_.rtx_due == due, "bytes to send again");
    if (!t_.queue.has_ring()) return;
    const Scoreboard& b = t_.queue.board();
    require(b.sacked_count == sacked_count, "the count of SACKed descriptors");
    require(!t_.sack_on || b.fack <= std::max(highest, t_.snd_max), "beyond what was SACKed");
    require(b.undo_retrans <= noted_, "more needless retransmissions than there were");
    for (const Scoreboard::Run& r : b.runs)
      for (const Piece& p : pieces_)
        require(p.end <= r.left || p.begin >= r.right || p.sacked,
                "a run with something in it that is not SACKed");
    if (t_.rtx_due == 0) return;
    StreamOffset at = 0;
    const SendDesc& d = t_.queue[next_lost(t_, at)];
    require(next != nullptr && d.offset == next->begin, "what to send again next");
    const StreamOffset begin = std::max(next->begin, una_);
    require(at == begin || at == std::max(begin, next->again), "where in it");
  }

  Bytes in_;
  PacketPool& pool_;
  Tcb t_;
  Instant now_ = Instant{} + Duration::s(10);
  std::vector<Piece> pieces_;
  StreamOffset una_;
  StreamOffset nxt_;
  size_t most_;
  uint32_t noted_ = 0;
  bool fin_ = false;
};

}  // namespace

int fuzz_scoreboard(const uint8_t* data, size_t size) {
  static std::vector<std::byte> memory(kFrames * kFrameBytes);
  PacketPool pool(memory, kFrameBytes);
  {
    Run r(data, size, pool);
    r.run();
  }
  require(pool.free_count() == pool.size(), "a frame was leaked");
  return 0;
}

}  // namespace vireo::fuzz
