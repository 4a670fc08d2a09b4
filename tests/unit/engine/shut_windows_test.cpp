// Peers that shut their windows and hold the pool (stack/engine/shut_windows.cpp).
#include <cerrno>

#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr unsigned kMax = 15'000, kPinned = 10'000;
constexpr uint32_t kBuffer = 4'000;

tcp::Config config() {
  tcp::Config c;
  c.snd_buf = kBuffer;
  c.nodelay = true;
  return c;
}

/// One of those who connect, shut the window and answer probes.
Peer attacker(Host& h, unsigned n) {
  Peer p(h, IpAddr::v4(be32(0x0b000000 + n / 50'000)), static_cast<uint16_t>(1024 + n % 50'000),
         80);
  p.iss = Seq32(n * 2654435761u);
  p.wscale = 0;
  return p;
}

// TCP.md 3.10 row 16 (RFC 6429, "sockstress"): ten thousand hold their windows shut and all of the
// pool that sending may take. Those who did so the longest are ended, oldest first and by RST, a
// new client is served, and those who read are left alone.
TEST(Attack, Row16_PressureEndsTheLongestPinned) {
  Host h{{.arena_bytes = size_t{74} << 20}};
  Listening& l = h.listen(80, 64, config());
  Peer reader(h, "12.0.0.1", 4000, 80);
  ASSERT_TRUE(reader.connect());
  Conn& kept = *h.accept(l);
  std::vector<Conn*> pinned;
  const auto pin = [&](unsigned n) {
    Peer p = attacker(h, n);
    ASSERT_TRUE(p.connect()) << n;
    Conn* const c = h.accept(l);
    ASSERT_NE(c, nullptr) << n;
    pinned.push_back(c);
    p.say(kAck, p.nxt, p.ack, {.window = 0, .options = p.options()});
    (void)h.write(*c, std::string(kBuffer, 'x'));
    h.heard().clear();
  };
  PacketPool& pool = h.engine().pool();
  const auto is_short = [&] { return pool.free_count() <= pool.size() / 8; };
  // The peers answer: every probe is acknowledged, at the same window.
  const auto answer = [&] {
    for (const Heard& s : std::exchange(h.heard(), {})) {
      if (s.to.port < 1024 || s.is(kRst) || s.data.empty()) continue;
      const Endpoint from = s.to;
      Peer p(h, from.addr, from.port, 80);
      std::array<uint8_t, 40> out;
      wire::TcpOptionWriter w(out);
      w.timestamps(p.ts_val, s.options.ts_val);
      const unsigned n = from.addr == reader.here.addr ? 0 : 1;
      p.say(kAck, s.ack, n == 0 ? s.seq + static_cast<uint32_t>(s.data.size()) : s.seq,
            {.window = static_cast<uint16_t>(n == 0 ? 65535 : 0),
             .options = {out.begin(), out.begin() + w.size()}});
    }
  };
  const auto pass = [&](Duration d) {
    for (const Instant end = h.now() + d; h.now() < end;) {
      h.pass(Duration::ms(50));
      answer();
    }
  };

  for (unsigned n = 0; n < kMax && !is_short(); ++n) {
    pin(n);
    if (n % 1000 == 999) pass(Duration::ms(500));  // some have done so for longer
  }
  ASSERT_TRUE(is_short()) << pool.free_count() << " of " << pool.size();
  const size_t all = pinned.size();
  EXPECT_GE(all, kPinned);
  pass(Duration::s(20));

  size_t ended = 0, last_ended = 0;
  for (size_t n = 0; n < all; ++n) {
    if (tcp::error(pinned[n]->tcb()) == 0) continue;
    EXPECT_EQ(tcp::error(pinned[n]->tcb()), ENOBUFS);
    EXPECT_TRUE(has(pinned[n]->effects, tcp::Effects::kError));
    ++ended;
    last_ended = n;
  }
  EXPECT_GT(ended, 0u) << "nobody was ended";
  EXPECT_LT(ended, all / 4) << "more than were in the way";
  EXPECT_LT(last_ended, all * 3 / 4) << "one of the latest was";
  EXPECT_FALSE(is_short());

  Peer fresh(h, "12.0.0.2", 4001, 80);
  ASSERT_TRUE(fresh.connect());
  Conn* const served = h.accept(l);
  ASSERT_NE(served, nullptr);
  fresh.say(kAck, fresh.nxt, fresh.ack, {.options = fresh.options()});
  EXPECT_EQ(h.write(*served, std::string(kBuffer, 'y')), kBuffer);
  EXPECT_EQ(h.write(kept, std::string(1000, 'z')), 1000u);
  EXPECT_EQ(tcp::error(kept.tcb()), 0);
}

// A window that is shut while memory is plenty stays shut as long as its peer likes (RFC 9293
// §3.8.6.1).
TEST(Pinned, NobodyIsEndedWithoutNeed) {
  Host h;
  Listening& l = h.listen(80, 64, config());
  Peer p = attacker(h, 1);
  ASSERT_TRUE(p.connect());
  Conn& c = *h.accept(l);
  p.say(kAck, p.nxt, p.ack, {.window = 0, .options = p.options()});
  h.write(c, std::string(kBuffer, 'x'));
  for (int i = 0; i < 600; ++i) {
    h.pass(Duration::s(1));
    if (!p.hear_all().empty()) p.say(kAck, p.nxt, p.ack, {.window = 0, .options = p.options()});
  }
  EXPECT_EQ(tcp::error(c.tcb()), 0);
  EXPECT_EQ(c.state(), tcp::State::kEstablished);
}

}  // namespace
}  // namespace vireo::test
