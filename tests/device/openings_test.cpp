// An RDMA interface that one process has open several times (caps().reopens): each opening has
// memory, a queue and rules of its own, and gets its own frames and no other's. By verbs and by
// mlx5 over softnic in lock-step.
#include <infiniband/mlx5dv.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "core/arena.h"
#include "dev/mlx5/mlx5.h"
#include "dev/verbs/verbs.h"
#include "frames.h"
#include "tests/apparatus/softnic/control.h"

namespace vireo::test {
namespace {

constexpr uint16_t kPort = 7000;
constexpr size_t kHeader = 42;  // Ethernet, IPv4, UDP
constexpr uint32_t kFrames = 128;

struct Kind {
  const char* name;
  decltype(&open_verbs) open;
};

/// One opening of a device, with its queue.
struct Opening {
  Opening(decltype(&open_verbs) open, int side) {
    constexpr uint32_t kFrameBytes = 2048;
    auto made = Arena::create(kFrames * size_t{kFrameBytes}, false);
    arena = std::move(*made);
    pool.emplace(arena.bytes().first(kFrames * size_t{kFrameBytes}), kFrameBytes);
    auto opened = open({.device = side == 0 ? "softnic0" : "softnic1", .mtu = 1500}, arena,
                       {.rx_frames = 32, .tx_frames = 32});
    EXPECT_TRUE(opened) << opened.error().where;
    device = std::move(*opened);
    auto q = device->open_queue(QueueId(0), *pool);
    EXPECT_TRUE(q) << q.error().where;
    queue = std::move(*q);
    queue->rx_refill();
  }
  ~Opening() {
    rules.clear();
    queue.reset();
    device.reset();
    EXPECT_EQ(pool->free_count(), pool->size()) << "frames are lent";
  }
  Result<void> steer(const FlowKey& key, uint32_t tag) {
    auto rule = device->steer(key, FlowTag(tag), *queue);
    if (!rule) return std::unexpected(rule.error());
    rules.push_back(std::move(*rule));
    return {};
  }
  /// Numbers of the frames that are there, each as often as it came.
  std::map<uint32_t, unsigned> take() {
    std::map<uint32_t, unsigned> got;
    RxDesc burst[16];
    for (unsigned idle = 0; idle < 4;) {
      softnic_pump();
      const unsigned n = queue->rx_burst(burst);
      idle = n == 0 ? idle + 1 : 0;
      for (unsigned i = 0; i < n; ++i) {
        ++got[number_of(burst[i].packet->bytes(), kHeader)];
        burst[i].packet.reset();
      }
      queue->rx_refill();
    }
    return got;
  }
  void send(const FrameSpec& spec, uint32_t number) {
    const Bytes bytes = build_frame(spec, numbered_payload(number, 60));
    ASSERT_TRUE(queue->tx({bytes, {}}, Doorbell::kNow));
    softnic_pump();
    queue->tx_reap();
  }

  Arena arena;
  std::optional<PacketPool> pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Queue> queue;
  std::vector<FlowRule> rules;
};

using Numbers = std::map<uint32_t, unsigned>;

class Openings : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    unsetenv("SOFTNIC_WIRE");
    softnic_set_mtu(1500);
    softnic_drive(true);
  }
  std::unique_ptr<Opening> open(int side) {
    return std::make_unique<Opening>(GetParam().open, side);
  }
  static FlowKey key(uint16_t port, const char* address = "10.0.0.2") {
    FlowKey k;
    k.proto = IpProto::kUdp;
    k.local = {*IpAddr::parse(address), port, 0};
    return k;
  }
  static FrameSpec to(uint16_t port, uint16_t from_port = 6000) {
    FrameSpec s;
    s.from = {*IpAddr::parse("10.0.0.1"), from_port, 0};
    s.to = {*IpAddr::parse("10.0.0.2"), port, 0};
    return s;
  }
};
INSTANTIATE_TEST_SUITE_P(, Openings,
                         testing::Values(Kind{"verbs", open_verbs}, Kind{"mlx5", open_mlx5}),
                         [](const auto& i) { return i.param.name; });

// Before Linux 5.13 a driver's rings are a forked parent's no more without it.
TEST_P(Openings, AForkIsPreparedFor) {
  const Opening one(GetParam().open, 0);
  EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_ENABLED);
}

TEST_P(Openings, TheDeviceSaysSo) { EXPECT_TRUE(open(0)->device->caps().reopens); }

TEST_P(Openings, EachGetsItsOwnFrames) {
  const auto sender = open(0);
  std::unique_ptr<Opening> rings[4];
  for (uint16_t i = 0; i < 4; ++i) {
    rings[i] = open(1);
    ASSERT_TRUE(rings[i]->steer(key(static_cast<uint16_t>(kPort + i)), i + 1U));
  }
  for (uint32_t n = 0; n < 40; ++n) sender->send(to(static_cast<uint16_t>(kPort + n % 4)), n);
  for (uint32_t i = 0; i < 4; ++i) {
    Numbers due;
    for (uint32_t n = i; n < 40; n += 4) due[n] = 1;
    EXPECT_EQ(rings[i]->take(), due) << i;
  }
}

TEST_P(Openings, EachSends) {
  const auto receiver = open(1);
  ASSERT_TRUE(receiver->steer(key(kPort), 1));
  const auto one = open(0), two = open(0);
  for (uint32_t n = 0; n < 10; n += 2) {
    one->send(to(kPort), n);
    two->send(to(kPort), n + 1);
  }
  Numbers due;
  for (uint32_t n = 0; n < 10; ++n) due[n] = 1;
  EXPECT_EQ(receiver->take(), due);
}

// A listener in one, a connection of its port in another.
TEST_P(Openings, AnExactRuleOfOneGoesBeforeAWiderOneOfAnother) {
  const auto sender = open(0), wide = open(1), exact = open(1);
  FlowKey k = key(kPort);
  k.remote = {*IpAddr::parse("10.0.0.1"), 6001, 0};
  ASSERT_TRUE(exact->steer(k, 2));
  ASSERT_TRUE(wide->steer(key(kPort), 1));
  sender->send(to(kPort, 6000), 1);
  sender->send(to(kPort, 6001), 2);
  EXPECT_EQ(wide->take(), (Numbers{{1, 1}}));
  EXPECT_EQ(exact->take(), (Numbers{{2, 1}}));
  exact->rules.clear();
  sender->send(to(kPort, 6001), 3);
  EXPECT_EQ(wide->take(), (Numbers{{3, 1}}));
}

TEST_P(Openings, AGroupComesToAllWhoAskForIt) {
  const auto sender = open(0), one = open(1), two = open(1), other = open(1);
  for (Opening* o : {one.get(), two.get()}) ASSERT_TRUE(o->steer(key(kPort, "239.1.2.3"), 1));
  ASSERT_TRUE(other->steer(key(kPort, "239.1.2.4"), 1));
  FrameSpec spec = to(kPort);
  spec.to.addr = *IpAddr::parse("239.1.2.3");
  spec.to_mac = {0x01, 0x00, 0x5e, 1, 2, 3};
  sender->send(spec, 1);
  EXPECT_EQ(one->take(), (Numbers{{1, 1}}));
  EXPECT_EQ(two->take(), (Numbers{{1, 1}}));
  EXPECT_EQ(other->take(), Numbers());
}

TEST_P(Openings, TheOthersGoOnWhenOneIsClosed) {
  const auto sender = open(0), stays = open(1);
  ASSERT_TRUE(stays->steer(key(kPort), 1));
  for (unsigned round = 0; round < 3; ++round) {
    auto goes = open(1);
    ASSERT_TRUE(goes->steer(key(kPort + 1), 2));
    sender->send(to(kPort), round);
    sender->send(to(kPort + 1), 100 + round);
    EXPECT_EQ(goes->take(), (Numbers{{100 + round, 1}}));
    sender->send(to(kPort + 1), 200 + round);  // in its ring when it ends
    goes.reset();
    sender->send(to(kPort + 1), 300 + round);
    EXPECT_EQ(stays->take(), (Numbers{{round, 1}}));
  }
}

/// Libraries that the test is linked with are found by dlopen(3) under their names.
[[maybe_unused]] const auto kLinked = &mlx5dv_is_supported;

}  // namespace
}  // namespace vireo::test
