// A program that reads nothing for a while has all frames of the pool in its sockets. It can speak
// all the same, hear what its words became, and nothing is lost when it reads again.
#include <algorithm>

#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr unsigned kGreedy = 128;
constexpr unsigned kSegment = 1400;

tcp::Config config() {
  tcp::Config c;
  c.rcv_buf = c.rcv_buf_max = 1 << 20;
  c.nodelay = true;
  return c;
}

std::string text(unsigned from, unsigned bytes) {
  std::string s(bytes, '\0');
  for (unsigned i = 0; i < bytes; ++i) s[i] = static_cast<char>((from + i) * 31 >> 3);
  return s;
}

struct Greedy {
  std::unique_ptr<Peer> peer;
  Conn* conn = nullptr;
  Seq32 first;
  unsigned said = 0;  ///< bytes
  std::string read;
};

TEST(ShortPool, WhoeverReadsNothingCanStillSpeak) {
  Host h;
  Listening& l = h.listen(80, 256, config());
  Peer quiet(h, "12.0.0.1", 4000, 80);
  ASSERT_TRUE(quiet.connect());
  Conn& talk = *h.accept(l);
  std::vector<Greedy> all(kGreedy);
  for (unsigned n = 0; n < kGreedy; ++n) {
    Greedy& g = all[n];
    g.peer = std::make_unique<Peer>(h, IpAddr::v4(be32(0x0b000000 + n)), 1024, 80);
    ASSERT_TRUE(g.peer->connect());
    g.conn = h.accept(l);
    ASSERT_NE(g.conn, nullptr);
    g.first = g.peer->nxt;
  }
  // Each says what its window takes, all at once, for as long as frames are taken.
  PacketPool& pool = h.engine().pool();
  for (unsigned round = 0; round < 46; ++round) {
    for (Greedy& g : all) {
      g.peer->say(kAck, g.peer->nxt, g.peer->ack,
                  {.data = text(g.said, kSegment), .options = g.peer->options()});
      g.peer->nxt = g.peer->nxt + kSegment;
      g.said += kSegment;
    }
    h.settle();
  }
  h.heard().clear();
  EXPECT_LT(pool.free_count(), pool.size() / 8) << "this test no longer fills the pool";
  EXPECT_GT(pool.free_count(), 0u);

  // A request and its answer, again and again.
  for (unsigned i = 0; i < 20; ++i) {
    ASSERT_EQ(h.write(talk, "x"), 1u) << i;
    h.settle();
    const auto heard = quiet.hear_all();
    ASSERT_FALSE(heard.empty()) << i;
    EXPECT_EQ(heard.back().data, "x");
    quiet.ack = heard.back().seq + 1;
    quiet.say(kAck, quiet.nxt, quiet.ack, {.data = "y", .options = quiet.options()});
    quiet.nxt = quiet.nxt + 1;
    h.settle();
    ASSERT_EQ(tcp::unacked_bytes(talk.tcb()), 0u) << i;
    ASSERT_EQ(h.read(talk), "y") << i;
  }

  // The program reads; what was not taken is said again, as by a timeout of the peer's.
  for (Greedy& g : all) {
    for (unsigned tries = 0; g.read.size() < g.said && tries < 200; ++tries) {
      g.read += h.read(*g.conn);
      const auto at = static_cast<unsigned>(g.read.size());
      if (at == g.said) break;
      g.peer->say(
          kAck, g.first + at, g.peer->ack,
          {.data = text(at, std::min(kSegment, g.said - at)), .options = g.peer->options()});
      h.settle();
    }
    ASSERT_EQ(g.read.size(), g.said);
    ASSERT_TRUE(g.read == text(0, g.said));
  }
  EXPECT_GT(pool.free_count(), pool.size() / 2);
}

}  // namespace
}  // namespace vireo::test
