// Which segments may leave as one, and what each of them says. That they are the same as one by
// one, through loss and recovery, is tests/sim's Sim.BurstsAreTheSameSegments.
#include "stack/tcp/burst.h"

#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

constexpr BurstLimits kWide{65'415, 64, 64};

class BurstTest : public TcpTest {
 protected:
  /// Established, window wide open, `bytes` written.
  static void fill(Peer& p, size_t bytes) {
    p.establish_active();
    p.t.cc.cwnd = 1 << 20;
    p.t.snd_edge = p.t.snd_una + (1 << 20);
    ASSERT_EQ(p.write(text(bytes)), bytes);
  }
  /// The segments of the burst that leaves now; empty: it is none.
  std::vector<Plan> burst(Peer& p, const BurstLimits& most = kWide) {
    std::vector<Plan> all;
    Plan first;
    if (!next_segment(p.t, p.now, first) || !plan_burst(p.t, first, most, b)) return all;
    b.for_each(first,
               [&](const Burst::Segment& s) { return all.push_back(b.plan(first, s)), true; });
    EXPECT_EQ(all.size(), b.segments);
    EXPECT_LE(b.bytes, most.bytes);
    EXPECT_LE(b.slice_count, most.slices);
    EXPECT_LE(b.segments, most.segments);
    sent_burst(p.t, first, b, b.segments, p.now);
    return all;
  }
  Burst b;
};
INSTANTIATE_TEST_SUITE_P(Iss, BurstTest, ::testing::Range(0, 6));

TEST_P(BurstTest, WholeSegmentsAndARest) {
  Peer p(ours(), theirs());
  fill(p, 10 * 1460 + 7);
  const auto all = burst(p);
  ASSERT_EQ(all.size(), 11u);
  for (size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(all[i].seq.value() - p.iss.value(), 1 + 1460 * i);
    EXPECT_EQ(all[i].length, i < 10 ? 1460 : 7);
    EXPECT_EQ(has(all[i].flags, kPsh), i == 10);
    EXPECT_EQ(all[i].length, all[i].packet->length);  // its sum is known
    EXPECT_EQ(all[i].packet->frame[all[i].at],
              std::byte{static_cast<uint8_t>('a' + 1460 * i % 26)});
  }
  EXPECT_EQ(p.t.data_segs_out, 11u);
  EXPECT_EQ(p.t.snd_nxt, p.t.snd_end);
  EXPECT_EQ(p.t.queue.board().snd_sml, p.t.snd_end);  // the rest was small (Minshall)
  EXPECT_TRUE(p.out().empty());
}

TEST_P(BurstTest, LimitsOfTheDevice) {
  Peer p(ours(), theirs());
  fill(p, 40 * 1460);
  EXPECT_EQ(burst(p, {10 * 1460 + 1459, 64, 64}).size(), 10u);
  EXPECT_EQ(burst(p, {65'415, 3, 64}).size(), 3u);
  EXPECT_EQ(burst(p, {65'415, 64, 5}).size(), 5u);
  EXPECT_EQ(burst(p, {65'415, 1, 64}).size(), 0u);
  EXPECT_EQ(burst(p, {1500, 64, 64}).size(), 0u);
}

TEST_P(BurstTest, NoMoreThanTheWindows) {  // RFC 9293 §3.8.6, RFC 5681 §3.1
  Peer p(ours(), theirs());
  fill(p, 40 * 1460);
  p.t.cc.cwnd = 7 * 1460 + 100;
  EXPECT_EQ(burst(p).size(), 7u);
  p.t.cc.cwnd = 1 << 20;
  p.t.max_wnd = 1 << 20;
  p.t.snd_edge = p.t.snd_nxt + 5 * 1460 + 100;
  EXPECT_EQ(burst(p).size(), 5u);
}

/// However many of it left before the ring was full.
TEST_P(BurstTest, BooksAreThoseOfOneByOne) {
  for (unsigned left = 1; left <= 6; ++left) {
    SCOPED_TRACE(left);
    Peer one(ours(), theirs());
    Peer all(ours(), theirs());
    for (Peer* p : {&one, &all}) {
      fill(*p, 5 * 1460 + 7);
      shutdown_write(p->t, p->now);
      p->t.ecn_on = p->t.ecn_cwr_due = true;
      p->t.recovery = Recovery::kFast;
    }
    Plan p;
    for (unsigned i = 0; i < left; ++i) {
      ASSERT_TRUE(next_segment(one.t, one.now, p));
      sent(one.t, p, one.now);
    }
    ASSERT_TRUE(next_segment(all.t, all.now, p));
    ASSERT_TRUE(plan_burst(all.t, p, kWide, b));
    ASSERT_EQ(b.segments, 6);
    sent_burst(all.t, p, b, left, all.now);
    EXPECT_EQ(all.t.snd_nxt, one.t.snd_nxt);
    EXPECT_EQ(all.t.snd_max, one.t.snd_max);
    EXPECT_EQ(all.t.segs_out, one.t.segs_out);
    EXPECT_EQ(all.t.data_segs_out, one.t.data_segs_out);
    EXPECT_EQ(all.t.bytes_sent, one.t.bytes_sent);
    EXPECT_EQ(all.t.push, one.t.push);
    EXPECT_EQ(all.t.ecn_cwr_due, one.t.ecn_cwr_due);
    EXPECT_EQ(all.t.rcv_acked, one.t.rcv_acked);
    EXPECT_EQ(all.t.last_sent - all.now, one.t.last_sent - one.now);
    EXPECT_EQ(all.t.rtx_timer, one.t.rtx_timer);
    EXPECT_EQ(all.t.rtx_at - all.now, one.t.rtx_at - one.now);
    EXPECT_EQ(all.t.rto_at - all.now, one.t.rto_at - one.now);
    EXPECT_EQ(all.t.queue.next_index(), one.t.queue.next_index());
    EXPECT_EQ(all.t.queue.board().snd_sml, one.t.queue.board().snd_sml);
    EXPECT_EQ(all.t.queue.board().prr_out, one.t.queue.board().prr_out);
    for (uint32_t i = 0; i < all.t.queue.count(); ++i)
      EXPECT_EQ(all.t.queue.at(i).sent_at == all.now, one.t.queue.at(i).sent_at == one.now) << i;
  }
}

TEST_P(BurstTest, NagleAndCorkHoldTheRest) {
  Peer p(ours(), theirs());
  p.config.nodelay = false;
  p.config.cork = true;
  fill(p, 5 * 1460 + 100);
  EXPECT_EQ(burst(p).size(), 5u);
  EXPECT_TRUE(p.out().empty());
}

TEST_P(BurstTest, FinEndsIt) {
  Peer p(ours(), theirs());
  fill(p, 4 * 1460 + 1);
  shutdown_write(p.t, p.now);
  const auto all = burst(p);
  ASSERT_EQ(all.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(has(all[i].flags, kFin | kPsh), i == 4);
  EXPECT_TRUE(p.out().empty());
  EXPECT_EQ(p.t.snd_nxt, p.t.snd_end + 1);
}

TEST_P(BurstTest, CwrIsOnTheFirst) {  // RFC 3168 §6.1.2
  Peer p(ours(), theirs());
  fill(p, 4 * 1460);
  p.t.ecn_on = p.t.ecn_cwr_due = true;
  const auto all = burst(p);
  ASSERT_EQ(all.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(has(all[i].flags, SegFlags::kCwr), i == 0);
    EXPECT_EQ(all[i].ecn, wire::Ecn::kEct0);
  }
  EXPECT_FALSE(p.t.ecn_cwr_due);
}

TEST_P(BurstTest, NeverUrgentData) {  // RFC 9293 §3.8.5: each pointer is another
  Peer p(ours(), theirs());
  fill(p, 4 * 1460);
  mark_urgent(p.t);
  EXPECT_TRUE(burst(p).empty());
  EXPECT_EQ(p.out().size(), 4u);
}

TEST_P(BurstTest, NeverRetransmissions) {
  Peer p(ours(), theirs());
  fill(p, 4 * 1460);
  EXPECT_EQ(burst(p).size(), 4u);
  for (int i = 0; i < 4; ++i) p.in(kAck, 1, 1);  // the first has another window
  Plan again;
  ASSERT_TRUE(next_segment(p.t, p.now, again));
  EXPECT_TRUE(again.retransmission);
  EXPECT_FALSE(plan_burst(p.t, again, kWide, b));
}

TEST_P(BurstTest, NeverBesideSackBlocks) {
  Peer p(ours(), theirs());
  p.config.sack = true;
  fill(p, 4 * 1400);
  p.in(kAck, 1001, 1, "ahead");
  p.out(1);  // the ACK
  EXPECT_TRUE(burst(p).empty());
  p.out();
}

TEST_P(BurstTest, PacedOnesAreAMillisecondLong) {
  Peer p(ours(), theirs());
  p.config.max_pacing_rate = 14'600'000;
  fill(p, 60 * 1460);
  EXPECT_EQ(burst(p).size(), 10u);
  set_max_pacing_rate(p.t, 100'000);  // where that is less than a segment: two, as Linux
  p.now = p.now + Duration::s(1);
  EXPECT_EQ(burst(p).size(), 2u);
  EXPECT_TRUE(burst(p).empty()) << "their time is to pass first";
}

}  // namespace
}  // namespace vireo::tcp
