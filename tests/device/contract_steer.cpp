// Steering: which flows come to us, from when to when, and under which tag.
#include "contract.h"

namespace vireo::test {
namespace {

TEST_P(DeviceContract, UnsteeredFramesDoNotCome) {
  if (!pair_->filters()) GTEST_SKIP() << "everything on this wire is ours";
  send_surely(0, build_frame(flow(0, 6000, kPort + 1), numbered_payload(1, 50)));
  FrameSpec tcp = flow(0);
  tcp.proto = IpProto::kTcp;
  send_surely(0, build_frame(tcp, numbered_payload(2, 50)));
  EXPECT_TRUE(stays_quiet(1));
}

TEST_P(DeviceContract, ARuleHoldsUntilItsHandleEnds) {
  const Bytes bytes = build_frame(flow(0, 6000, 7100), numbered_payload(1, 50));
  for (int round = 0; round < 3; ++round) {
    auto rule = pair_->device(1).steer(local_key(1, 7100), FlowTag(5), queue(1));
    ASSERT_TRUE(rule);
    send_surely(0, bytes);
    ASSERT_EQ(receive(1, 1).size(), 1U) << round;
    rule->reset();
    EXPECT_FALSE(*rule);
    if (!pair_->filters()) continue;
    send_surely(0, bytes);
    EXPECT_TRUE(stays_quiet(1)) << round;
  }
}

TEST_P(DeviceContract, TheSameKeyTwiceIsRefused) {
  auto again = pair_->device(1).steer(local_key(1), FlowTag(9), queue(1));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, EEXIST);
  send_surely(0, frame(0, 1));
  EXPECT_EQ(receive(1, 1).size(), 1U) << "the refused rule took the first one away";
  rules_.clear();
  auto anew = pair_->device(1).steer(local_key(1), FlowTag(9), queue(1));
  EXPECT_TRUE(anew) << "the key is free again";
}

TEST_P(DeviceContract, ExactGoesBeforeLocalBeforeWildcard) {
  Device& device = pair_->device(1);
  const uint16_t port = 7200;
  const Bytes bytes = build_frame(flow(0, 6100, port), numbered_payload(1, 50));
  FlowKey wild = local_key(1, port);
  wild.local.addr = IpAddr::any_v4();
  FlowKey exact = local_key(1, port);
  exact.remote = {pair_->v4(0), 6100, 0};
  FlowKey other = exact;
  other.remote.port = 6101;
  struct Step {
    FlowKey key;
    uint32_t tag;
  };
  const auto tag_now = [&]() -> uint32_t {
    send_surely(0, bytes);
    const auto got = receive(1, 1);
    if (got.size() != 1) return UINT32_MAX;
    EXPECT_EQ(got[0].bytes, bytes);
    return has(got[0].flags, RxFlags::kHasTag) ? got[0].tag.value() : 0;
  };
  const bool tags = device.caps().tags;
  for (const std::vector<Step>& order :
       {std::vector<Step>{{wild, 1}, {local_key(1, port), 2}, {exact, 3}, {other, 4}},
        std::vector<Step>{{other, 4}, {exact, 3}, {local_key(1, port), 2}, {wild, 1}}}) {
    std::vector<std::pair<uint32_t, FlowRule>> rules;
    uint32_t best = 0;
    for (const Step& s : order) {
      auto rule = device.steer(s.key, FlowTag(s.tag), queue(1));
      ASSERT_TRUE(rule) << s.tag;
      rules.emplace_back(s.tag, std::move(*rule));
      if (s.tag != 4) best = std::max(best, s.tag);
      if (best == 0) continue;
      const uint32_t tag = tag_now();
      ASSERT_NE(tag, UINT32_MAX) << "nothing came";
      if (tags) {
        EXPECT_EQ(tag, best);
      }
    }
    for (const uint32_t gone : {3U, 2U, 1U}) {
      std::erase_if(rules, [&](const auto& r) { return r.first == gone; });
      if (gone == 1) break;
      const uint32_t tag = tag_now();
      ASSERT_NE(tag, UINT32_MAX) << "the wider rule does not take over from " << gone;
      if (tags) {
        EXPECT_EQ(tag, gone - 1);
      }
    }
    if (pair_->filters()) {
      send_surely(0, bytes);
      EXPECT_TRUE(stays_quiet(1));
    }
  }
}

TEST_P(DeviceContract, RulesComeAndGoUnderTraffic) {
  // The steered flow loses nothing while others are added and removed around it, its own exact rule
  // among them.
  FlowKey exact = local_key(1);
  exact.remote = {pair_->v4(0), 6000, 0};
  std::vector<FlowRule> others;
  uint32_t next = 0;
  for (uint32_t i = 0; i < 400; ++i) {
    send_surely(0, frame(0, i));
    if (i % 4 == 0) {
      auto rule = pair_->device(1).steer(local_key(1, static_cast<uint16_t>(8000 + i)), FlowTag(i),
                                         queue(1));
      ASSERT_TRUE(rule);
      others.push_back(std::move(*rule));
    }
    if (i % 8 == 3) {
      auto rule = pair_->device(1).steer(exact, FlowTag(1), queue(1));
      ASSERT_TRUE(rule);
      others.push_back(std::move(*rule));
    }
    if (i % 8 == 7) others.clear();
    for (const Received& r : receive(1, 1)) ASSERT_EQ(number_of(r.bytes, kHeader), next++);
  }
  for (const Received& r : receive(1, 400 - next)) ASSERT_EQ(number_of(r.bytes, kHeader), next++);
  EXPECT_EQ(next, 400U);
}

TEST_P(DeviceContract, AnAbandonedRuleIsNotRemoved) {
  const Bytes bytes = build_frame(flow(0, 6000, 7300), numbered_payload(1, 50));
  auto rule = pair_->device(1).steer(local_key(1, 7300), FlowTag(1), queue(1));
  ASSERT_TRUE(rule);
  rule->abandon();
  rule->reset();
  send_surely(0, bytes);
  EXPECT_EQ(receive(1, 1).size(), 1U);
}

}  // namespace
}  // namespace vireo::test
