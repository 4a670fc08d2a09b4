// A doorbell is the device's own call, and the dearest thing on the way out: what one turn answers
// leaves with one of them.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr int kPeers = 40;  // 32 leave together

class Doorbells : public testing::Test {
 protected:
  Host h;
  Listening& l = h.listen(80, 64);
  std::vector<std::unique_ptr<Peer>> peers;

  void SetUp() override {
    for (int i = 0; i < kPeers; ++i)
      peers.push_back(std::make_unique<Peer>(h, "11.0.0.7", static_cast<uint16_t>(40'000 + i), 80));
  }
  uint64_t rung() { return h.link().stats(MemEnd::kA).doorbells; }
  /// @return how many were rung in one turn.
  uint64_t turn() {
    const uint64_t before = rung();
    h.poll();
    return rung() - before;
  }
};

TEST_F(Doorbells, OneForManyWhoKnock) {
  for (auto& p : peers)
    p->say(kSyn, p->iss, Seq32(0), {.options = p->syn_options(), .poll_now = false});
  EXPECT_EQ(turn(), 2u);
  for (auto& p : peers) EXPECT_EQ(p->hear_all().size(), 1u);
}

TEST_F(Doorbells, OneForManyWhoAreAcknowledged) {
  for (auto& p : peers) {
    ASSERT_TRUE(p->connect());
    ASSERT_NE(h.accept(l), nullptr);
    p->hear_all();
  }
  for (auto& p : peers)
    p->say(kAck | kPsh, p->nxt, p->ack,
           {.data = "request", .options = p->options(), .poll_now = false});
  EXPECT_EQ(turn(), 2u);
  for (auto& p : peers) EXPECT_EQ(p->hear_all().size(), 1u);
}

TEST_F(Doorbells, OneForEachThatComesAlone) {
  for (auto& p : peers) {
    p->say(kSyn, p->iss, Seq32(0), {.options = p->syn_options(), .poll_now = false});
    EXPECT_EQ(turn(), 1u);
    EXPECT_EQ(p->hear_all().size(), 1u);
  }
}

}  // namespace
}  // namespace vireo::test
