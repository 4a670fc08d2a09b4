// A program that sends and never looks for what came.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

TEST(OnlySends, TakesTheAcksOfWhatLeft) {
  Host h;
  Peer peer{h, "11.0.0.7", 40'000, 80};
  Listening& l = h.listen(80);
  ASSERT_TRUE(peer.connect());
  Conn* const c = h.accept(l);
  ASSERT_NE(c, nullptr);
  tcp::Tcb& t = c->tcb();
  t.cc.cwnd = 1 << 20;
  const auto send = [&](size_t n) {
    std::string bytes(n, 'x');
    const iovec v{bytes.data(), n};
    h.engine().acquire();
    EXPECT_EQ(h.engine().tcp_send(*c->flow, {&v, 1}, false, h.now()), n);
    h.engine().unlock();
    h.link().step(h.now());
  };
  send(20'000);
  uint32_t told = 0;
  for (const Heard& s : peer.hear_all()) told += static_cast<uint32_t>(s.data.size());
  ASSERT_GT(told, 10'000U);
  const StreamOffset before = t.snd_una;
  peer.say(kAck, peer.nxt, peer.ack + told, {.options = peer.options(), .poll_now = false});
  const uint64_t polls = h.stats().polls.get();
  send(1000);
  EXPECT_EQ(h.stats().polls.get(), polls) << "not for so little";
  EXPECT_EQ(t.snd_una, before);
  send(20'000);
  EXPECT_GT(h.stats().polls.get(), polls);
  EXPECT_EQ(t.snd_una, before + told);
}

}  // namespace
}  // namespace vireo::test
