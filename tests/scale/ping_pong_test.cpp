// What one message of a ping-pong costs the engine: a segment of 14 bytes in, the bytes taken, an
// answer of 14 bytes out. Instructions, the `mem` device's own among them.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/scale/steps.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr char kMessage[] = "fourteen bytes";
constexpr uint32_t kBytes = sizeof kMessage - 1;

/// The engine's part of one round.
__attribute__((noinline)) uint64_t answer(Host& h, TcpFlow& f, bool counts) {
  char bytes[kBytes];
  const iovec v{bytes, sizeof bytes};
  const Instant now = h.now();
  h.engine().lock().lock();
  if (counts) begin_steps();
  h.engine().poll(now);
  PacketChain& q = tcp::recv_queue(f.tcb);
  if (!q.empty()) {
    std::copy_n(reinterpret_cast<const char*>(q.front()->data()), sizeof bytes, bytes);
    q.trim_front(sizeof bytes);
  }
  h.engine().tcp_received(f, sizeof bytes, now);
  h.engine().tcp_send(f, {&v, 1}, false, now);
  const uint64_t steps = counts ? end_steps() : 0;
  h.engine().unlock();
  return steps;
}

TEST(Scale, PingPong) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, ip("10.9.9.9"), 40'000, 80);
  p.timestamps = true;
  ASSERT_TRUE(p.connect());
  Conn* const c = h.accept(l);
  ASSERT_NE(c, nullptr);
  std::vector<uint64_t> steps;
  for (int round = 0; round < 200; ++round) {
    h.pass(Duration::us(20));
    p.say(kAck | kPsh, p.nxt, p.ack, {.data = kMessage, .options = p.options(), .poll_now = false});
    steps.push_back(answer(h, *c->flow, round >= 150));
    h.settle();
    const auto heard = p.hear_all();
    ASSERT_FALSE(heard.empty());
    ASSERT_EQ(heard.back().data, kMessage);
    p.nxt = p.nxt + kBytes;
    p.ack = p.ack + kBytes;
  }
  std::sort(steps.begin() + 150, steps.end());
  std::printf("%lu instructions a message\n", steps[175]);
#ifndef VIREO_DEBUG  // debug builds check and sanitize as they go
  EXPECT_LE(steps[175], 5000);
#endif
}

}  // namespace
}  // namespace vireo::test
