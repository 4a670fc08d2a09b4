// Members of a group share a local end of UDP: each gets a copy of each frame, and the kernel the
// frame.
#include <poll.h>

#include <array>

#include "dev/xdp/copy_queue.h"
#include "group_lab.h"

namespace vireo::test {
namespace {

constexpr uint32_t kFrame = 2048;

/// A member's ring, and a pool for what comes by it.
struct Reader {
  explicit Reader(const std::shared_ptr<xdp::Steering>& steering, uint32_t frames = 512)
      : memory(size_t{frames} * kFrame), pool(memory, kFrame) {
    auto opened = xdp::CopyQueue::open(pool, steering, false);
    if (opened) queue = std::move(*opened);
  }
  /// All that has come.
  std::vector<Bytes> read() {
    std::vector<Bytes> all;
    std::array<RxDesc, 16> d;
    while (const unsigned n = queue->rx_burst(d))
      for (RxDesc& one : std::span(d).first(n)) {
        const auto bytes = std::as_const(*one.packet).bytes();
        all.emplace_back(bytes.begin(), bytes.end());
        EXPECT_EQ(one.flags, RxFlags::kNone);
        one.packet.reset();
      }
    return all;
  }
  bool is_readable() const {
    pollfd p{queue->wait_fd(), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  }

  std::vector<std::byte> memory;
  PacketPool pool;
  std::unique_ptr<Queue> queue;
};

struct CopyLab : GroupLab {
  CopyLab() {
    if (is_open && add_b() && add_c())
      for (const auto& s : {a, b, c}) readers.push_back(std::make_unique<Reader>(s));
  }
  bool made() const {
    return readers.size() == 3 &&
           std::ranges::all_of(readers, [](const auto& r) { return r->queue != nullptr; });
  }
  /// Sends it. @return how often A, B, C, the kernel, and any member's socket got it as it is.
  std::array<int, 5> outcome(const Bytes& frame) {
    EXPECT_TRUE(wire.send(frame));
    std::array<int, 5> got{};
    const auto passed = kernel.receive(20);
    got[3] = passed && *passed == frame;
    for (size_t i = 0; i < 3; ++i)
      for (const Bytes& copy : readers[i]->read()) got[i] += copy == frame;
    for (const auto& [socket, who] : sockets()) got[4] += socket->receive().has_value();
    return got;
  }
  std::vector<std::unique_ptr<Reader>> readers;
};

using Got = std::array<int, 5>;

class Copies : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
    ASSERT_TRUE(lab.made());
  }
  const Flow flow{IpProto::kUdp, GetParam()};
  const FlowKey key = flow.key(Kind::kLocal);
  CopyLab lab;
};

/// UDP to the shared end, `bytes` long with all headers.
Bytes frame_of(const Flow& flow, size_t bytes) {
  FrameSpec s;
  s.proto = IpProto::kUdp;
  s.from = flow.key(Kind::kExact).remote;
  s.to = flow.key(Kind::kExact).local;
  s.from_mac = {2, 0, 0, 0, 0, 2};
  s.to_mac = kOurMac;
  const size_t head = 14U + (flow.v6 ? 40U : 20U) + 8U;
  return build_frame(s, numbered_payload(static_cast<uint32_t>(bytes), bytes - head));
}

TEST_P(Copies, EachSharerGetsOneAndTheKernelTheFrame) {
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{0, 0, 0, 1, 0})) << "before there is a rule";
  const auto of_a = lab.a->share(key);
  ASSERT_TRUE(of_a) << of_a.error().where;
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{1, 0, 0, 1, 0}));
  const auto of_b = lab.b->share(key), of_c = lab.c->share(key);
  ASSERT_TRUE(of_b && of_c);
  EXPECT_EQ(lab.a->shared_end(*of_a), lab.c->shared_end(*of_c));
  // On both sides of each length of record.
  for (const size_t bytes : {size_t{70}, size_t{247}, size_t{248}, size_t{249}, size_t{504},
                             size_t{505}, size_t{1513}, size_t{1514}})
    EXPECT_EQ(lab.outcome(frame_of(flow, bytes)), (Got{1, 1, 1, 1, 0})) << bytes;
  EXPECT_EQ(lab.outcome(Flow{IpProto::kUdp, GetParam(), 81}.frame()), (Got{0, 0, 0, 1, 0}));
  EXPECT_EQ(lab.outcome(Flow{IpProto::kTcp, GetParam()}.frame()), (Got{0, 0, 0, 1, 0}));
  lab.b->remove(*of_b);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{1, 0, 1, 1, 0}));
  lab.a->remove(*of_a);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{0, 0, 1, 1, 0}));
  lab.c->remove(*of_c);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{0, 0, 0, 1, 0}));
  lab.expect_empty();
}

TEST_P(Copies, WhatIsNoWholeDatagramIsTheKernelsAlone) {
  GroupLab::tell(*lab.a, true);
  ASSERT_TRUE(lab.a->share(key));
  EXPECT_EQ(lab.outcome(flow.fragment(1, true)), (Got{0, 0, 0, 1, 0}));
  EXPECT_EQ(lab.outcome(flow.fragment(1, false)), (Got{0, 0, 0, 1, 0}));
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{1, 0, 0, 1, 0}));
}

TEST_P(Copies, AnExactRuleComesFirst) {
  ASSERT_TRUE(lab.a->share(key));
  const auto connected = lab.b->add(flow.key(Kind::kExact), FlowTag());
  ASSERT_TRUE(connected);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{0, 0, 0, 0, 1}));
  lab.b->remove(*connected);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{1, 0, 0, 1, 0}));
}

TEST_P(Copies, TheRuleOfOneGivesWay) {
  const auto of_one = lab.a->add(key, FlowTag());
  ASSERT_TRUE(of_one);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{0, 0, 0, 0, 1}));
  EXPECT_EQ(lab.a->share(key).error().code, EEXIST) << "its own";
  const auto of_b = lab.b->share(key);
  ASSERT_TRUE(of_b);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{0, 1, 0, 1, 0})) << "A hears by the kernel";
  lab.a->remove(*of_one);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{0, 1, 0, 1, 0}));
  EXPECT_EQ(lab.a->add(key, FlowTag()).error().code, EEXIST);
  const auto of_a = lab.a->share(key);
  ASSERT_TRUE(of_a);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{1, 1, 0, 1, 0}));
  lab.a->remove(*of_a);
  lab.b->remove(*of_b);
  lab.expect_empty();
}

TEST_P(Copies, TheDeadGetNone) {
  for (const auto& s : {lab.a, lab.b, lab.c}) ASSERT_TRUE(s->share(key));
  lab.dead.insert(GroupLab::kSlotB);
  lab.a->remove_all_of(GroupLab::kSlotB);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{1, 0, 1, 1, 0}));
  lab.a->remove_all_of(GroupLab::kSlotA);
  lab.c->remove_all_of(GroupLab::kSlotC);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{0, 0, 0, 1, 0}));
  lab.expect_empty();
}

TEST_P(Copies, InOrderAndWhatFindsNoRoomIsCounted) {
  ASSERT_TRUE(lab.a->share(key));
  ASSERT_TRUE(lab.b->share(key));
  Reader& full = *lab.readers[0];
  Reader& other = *lab.readers[1];
  const auto numbered = [&](uint32_t n) {
    Bytes f = frame_of(flow, 1500);
    std::memcpy(&f[f.size() - 4], &n, 4);
    return f;
  };
  const auto number_of = [](const Bytes& f) {
    uint32_t n = 0;
    std::memcpy(&n, &f[f.size() - 4], 4);
    return n;
  };
  constexpr uint32_t kSent = 3000;  // more than the ring has room for
  uint32_t next = 0;
  for (uint32_t n = 0; n < kSent; ++n) {
    ASSERT_TRUE(lab.wire.send(numbered(n)));
    while (lab.kernel.receive(0)) {
    }
    for (const Bytes& f : other.read()) EXPECT_EQ(number_of(f), next++);
  }
  for (int tries = 0; next < kSent && tries < 100; ++tries) {
    usleep(1000);
    for (const Bytes& f : other.read()) EXPECT_EQ(number_of(f), next++);
  }
  EXPECT_EQ(next, kSent);
  EXPECT_EQ(other.queue->losses().rx_ring_full, 0U);
  const uint64_t lost = full.queue->losses().rx_ring_full;
  EXPECT_GT(lost, 0U);
  uint32_t kept = 0;
  for (const Bytes& f : full.read()) EXPECT_EQ(number_of(f), kept++);
  EXPECT_EQ(kept + lost, kSent);
  EXPECT_EQ(lab.outcome(flow.frame()), (Got{1, 1, 0, 1, 0})) << "afterwards";
}

TEST_P(Copies, WithoutABufferTheyWait) {
  ASSERT_TRUE(lab.a->share(key));
  Reader& r = *lab.readers[0];
  std::vector<PacketBuf*> held;
  while (PacketBuf* const p = r.pool.take_for_rx()) held.push_back(p);
  EXPECT_EQ(lab.outcome(flow.frame())[0], 0);
  PacketPool::drop(held.back());
  EXPECT_EQ(r.read().size(), 1U);
  held.pop_back();
  for (PacketBuf* const p : held) PacketPool::drop(p);
  EXPECT_EQ(r.pool.free_count(), r.pool.size());
}

TEST_P(Copies, WhoSleepsIsWokenOnce) {
  ASSERT_TRUE(lab.a->share(key));
  Reader& r = *lab.readers[0];
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(r.queue->arm().value_or(false));
    EXPECT_FALSE(r.is_readable());
    ASSERT_TRUE(lab.wire.send(flow.frame()));
    pollfd p{r.queue->wait_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&p, 1, 2000), 1) << "round " << round;
    EXPECT_FALSE(r.queue->arm().value_or(true)) << "there is work";
    r.queue->wake_ack();
    EXPECT_EQ(r.read().size(), 1U);
    EXPECT_FALSE(r.is_readable());
  }
}

INSTANTIATE_TEST_SUITE_P(Ends, Copies, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "v6" : "v4"; });

}  // namespace
}  // namespace vireo::test
