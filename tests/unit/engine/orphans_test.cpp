// Connections that their program has closed: how many there may be (tcp(7) tcp_max_orphans).
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr unsigned kMax = 8;

/// A connection whose peer acknowledges our FIN and never sends its own; the program closes it.
void leave(Host& h, Listening& l, Peer& p) {
  ASSERT_TRUE(p.connect());
  Conn* const c = h.accept(l);
  ASSERT_NE(c, nullptr);
  h.write(*c, "bye");
  const auto heard = p.hear_all();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].data, "bye");
  h.close(*c);
}

// TCP.md 3.10 row 18: peers that never end what we have closed. Each of them beyond the cap is
// reset when its program closes, whatever it owes, and holds nothing; those within it have their
// minute.
TEST(Attack, Row18_OrphansAreCapped) {
  for (const bool peer_ends_first : {false, true}) {
    Host h{{.max_orphans = kMax}};
    Listening& l = h.listen(80, 64);
    const uint32_t frames = h.engine().pool().free_count();
    std::vector<Peer> peers;
    for (uint16_t n = 0; n < 3 * kMax; ++n) peers.emplace_back(h, "11.0.0.7", 4000 + n, 80);
    for (unsigned n = 0; n < peers.size(); ++n) {
      Peer& p = peers[n];
      if (peer_ends_first) {  // LAST-ACK, and our data is never acknowledged
        ASSERT_TRUE(p.connect());
        p.say(kFin | kAck);
        Conn* const c = h.accept(l);
        ASSERT_NE(c, nullptr);
        h.write(*c, std::string(5000, 'x'));
        h.close(*c);
      } else {
        leave(h, l, p);
      }
      const auto heard = p.hear_all();
      ASSERT_FALSE(heard.empty());
      const bool is_reset = has(heard.back().flags, kRst);
      EXPECT_EQ(is_reset, n >= kMax) << n;
      EXPECT_EQ(h.engine().census().orphans, std::min(n + 1, kMax));
      if (peer_ends_first || is_reset) continue;
      p.say(kAck, p.nxt, heard.back().seq + 1, {.options = p.options()});  // FIN-WAIT-2
    }
    if (peer_ends_first) continue;
    EXPECT_EQ(h.engine().census().connections, kMax);
    EXPECT_EQ(h.engine().pool().free_count(), frames) << "all that was sent is acknowledged";
    h.pass(Duration::s(61));
    EXPECT_EQ(h.engine().census().connections, 0u);
    Peer late(h, "11.0.0.8", 4000, 80);  // there is room again
    leave(h, l, late);
    EXPECT_FALSE(has(late.hear_all().back().flags, kRst));
  }
}

/// What needs no more than TIME-WAIT, or nothing, is never in the way.
TEST(Orphans, ThoseThatEndAreNotCounted) {
  Host h{{.max_orphans = 1}};
  Listening& l = h.listen(80, 64);
  for (uint16_t n = 0; n < 10; ++n) {
    Peer p(h, "11.0.0.7", 4000 + n, 80);
    ASSERT_TRUE(p.connect());
    Conn* const c = h.accept(l);
    ASSERT_NE(c, nullptr);
    h.close(*c);
    const auto fin = p.hear();
    ASSERT_TRUE(fin && fin->is(kFin | kAck)) << n;
    EXPECT_EQ(h.engine().census().orphans, 1u);
    p.say(kFin | kAck, p.nxt, fin->seq + 1, {.options = p.options()});
    EXPECT_EQ(h.engine().census().orphans, 0u);
  }
  EXPECT_EQ(h.engine().census().time_waits, 10u);
}

}  // namespace
}  // namespace vireo::test
