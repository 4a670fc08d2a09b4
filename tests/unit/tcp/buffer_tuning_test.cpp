// Buffers that grow with the path: exactly by the rule of buffer_tuning.h, in virtual time.
#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

class Tuning : public TcpTest {
 protected:
  /// The peer sends `bytes` spread over one round trip, the program reads them, the ACKs leave.
  static void round(Peer& p, uint32_t bytes, Duration rtt, uint32_t& seq) {
    const uint32_t n = (bytes + 1459) / 1460;
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t length = std::min(bytes - i * 1460, 1460U);
      p.now = p.now + rtt / n;
      p.ts_ecr = timestamp(p.t, p.now - rtt);
      ++p.ts_val;
      p.in(kAck, seq, 1, text(length));
      seq += length;
      const StreamOffset edge = p.t.rcv_adv;
      p.read();
      p.out();
      EXPECT_GE(p.t.rcv_adv, edge) << "the edge moved left";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Iss, Tuning, ::testing::Range(0, 6));

void configure(Peer& p) {
  p.config.window_scaling = true;
  p.config.rcv_buf = 64 * 1024;
  p.config.rcv_buf_max = 250'000;
  p.config.wscale = 7;
}

TEST_P(Tuning, TwiceWhatWasTakenInARoundTrip) {
  Peer p(ours(), theirs(), 2048);
  configure(p);
  p.establish_active();
  p.t.tuning.rtt = Duration::us(9'999);
  p.t.tuning.space = 40'000;
  p.t.tuning.round_at = p.now;
  if (!p.t.ts_on) p.t.tuning.window_end = 1U << 30;
  uint32_t seq = 1;
  round(p, 30 * 1460, Duration::ms(10), seq);
  const uint64_t want = 2 * 43'800 + 16 * 1460;
  EXPECT_EQ(p.t.rcv_buf, want + 2 * (want * (43'800 - 40'000) / 40'000));
  EXPECT_EQ(info(p.t).rcv_space, 43'800u);
}

TEST_P(Tuning, GrowsToTheMostAndNoFurther) {
  Peer p(ours(), theirs(), 2048);
  configure(p);
  p.establish_active();
  uint32_t seq = 1;
  for (int i = 0; i < 12; ++i) {
    const auto open = static_cast<uint32_t>(p.t.rcv_adv - p.t.rcv_nxt);
    round(p, std::min(open, 100'000U), Duration::ms(20), seq);
  }
  EXPECT_EQ(p.t.rcv_buf, 250'000u);
  EXPECT_GE(p.t.rcv_adv - p.t.rcv_nxt, 200'000u);
}

TEST_P(Tuning, ASizeThatWasSetStays) {  // tcp(7): SO_RCVBUF, SO_SNDBUF end the tuning
  Peer p(ours(), theirs(), 2048);
  configure(p);
  p.config.snd_buf = 50'000;
  p.config.snd_buf_max = 1'000'000;
  p.establish_active();
  set_rcv_buf(p.t, 80'000);
  set_snd_buf(p.t, 30'000);
  uint32_t seq = 1;
  for (int i = 0; i < 8; ++i) round(p, 60'000, Duration::ms(20), seq);
  EXPECT_EQ(p.t.rcv_buf, 80'000u);
  p.t.cc.cwnd = 1'000'000;
  p.write(text(1000));
  p.out();
  p.in(kAck, seq, 1001);
  EXPECT_EQ(p.t.snd_buf, 30'000u);
}

TEST_P(Tuning, SlowReaderKeepsItsBuffer) {
  Peer p(ours(), theirs(), 2048);
  configure(p);
  p.config.timestamps = true;  // without them a slow sender looks like a long path, as on Linux
  p.establish_active();
  uint32_t seq = 1;
  for (int i = 0; i < 50; ++i) round(p, 2000, Duration::ms(20), seq);
  EXPECT_EQ(p.t.rcv_buf, 65'536u);
}

TEST_P(Tuning, TheReceiversRoundTripByEcho) {  // RFC 7323 §4.1
  Peer p(ours(), theirs(), 2048);
  configure(p);
  p.config.timestamps = true;
  p.establish_active();
  p.ts_val = 200;
  for (int i = 0; i < 60; ++i) {
    p.ts_ecr = timestamp(p.t, p.now);
    p.now = p.now + Duration::ms(30);
    ++p.ts_val;
    p.in(kAck, 1 + static_cast<uint32_t>(i), 1, "x");
    p.out();
  }
  EXPECT_NEAR(static_cast<double>(info(p.t).rcv_rtt.us()), 30'000.0, 1500.0);
}

TEST_P(Tuning, SendBufferIsTwiceTheWindow) {
  Peer p(ours(), theirs(), 2048);
  p.config.snd_buf = 20'000;
  p.config.snd_buf_max = 60'000;
  p.establish_active();
  EXPECT_EQ(send_room(p.t), 20'000u);
  p.write(text(20'000));
  p.out();
  p.in(kAck, 1, 1 + 2920);
  EXPECT_EQ(p.t.snd_buf, 2 * p.t.cc.cwnd);
  p.t.cc.cwnd = 500'000;
  p.in(kAck, 1, 1 + 4 * 1460);
  EXPECT_EQ(p.t.snd_buf, 60'000u);
}

TEST_P(Tuning, NotWhileHalfTheFramesAreTaken) {
  Peer p(ours(), theirs(), 64);
  p.config.snd_buf = 20'000;
  p.config.snd_buf_max = 60'000;
  p.establish_active();
  std::vector<PacketBuf*> taken;
  while (p.pool.free_count() > p.pool.size() / 2 - 10) taken.push_back(p.pool.take());
  p.write(text(2000));
  p.out();
  p.t.cc.cwnd = 500'000;
  p.in(kAck, 1, 1 + 1460);
  EXPECT_EQ(p.t.snd_buf, 20'000u);
  for (PacketBuf* b : taken) PacketPool::drop(b);
}

}  // namespace
}  // namespace vireo::tcp
