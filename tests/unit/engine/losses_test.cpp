// Frames that a device lost before the engine could see them: counted, and told.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

TEST(Losses, AnOverflowingRingShowsItsCount) {
  Host h({.device = {.rx_ring = 32}});
  h.listen(80);
  Peer p(h, "10.1.2.3", 4000, 80);
  for (uint32_t i = 0; i < 100; ++i)
    p.say(kAck, Seq32(i), Seq32(1), {.data = "x", .poll_now = false});
  h.engine().ports().count_losses();
  EXPECT_EQ(h.stats().rx_lost_no_frame.get(), 68u);
  EXPECT_EQ(h.stats().rx_lost_ring_full.get(), 0u);
  h.settle();
  EXPECT_EQ(h.stats().rx_packets.get(), 32u);
  p.say(kAck, Seq32(1000), Seq32(1), {.data = "x"});
  h.engine().ports().look_after();
  EXPECT_EQ(h.stats().rx_lost_no_frame.get(), 68u) << "a count since the start, not a rate";
}

TEST(Losses, ADeviceThatIsGoneKeepsItsCount) {
  Host h({.device = {.rx_ring = 32}});
  h.listen(80);
  Peer p(h, "10.1.2.3", 4000, 80);
  for (uint32_t i = 0; i < 40; ++i)
    p.say(kAck, Seq32(i), Seq32(1), {.data = "x", .poll_now = false});
  h.engine().ports().look_after();
  EXPECT_EQ(h.stats().rx_lost_no_frame.get(), 8u);
  h.link().unplug(MemEnd::kA);
  h.engine().ports().look_after();
  EXPECT_EQ(h.stats().rx_lost_no_frame.get(), 8u);
}

}  // namespace
}  // namespace vireo::test
