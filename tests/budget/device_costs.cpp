// What one host's device costs per round, dev/verbs beside dev/mlx5, and that with striding receive
// queues: all on softnic in lock-step,
// so that nothing of the device's own work depends on time. Under callgrind every path leaves its
// own dump, which bench/budget reads; what softnic does meanwhile is not counted. Without it, the
// frames that come back show that the path is the one meant.
#include <infiniband/mlx5dv.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "dev/mlx5/mlx5.h"
#include "tests/apparatus/softnic/control.h"
#include "tests/device/opened_ends.h"

namespace vireo::test {
namespace {

constexpr int kWarmUp = 200, kRounds = 1000;
constexpr uint16_t kPort = 7000;
constexpr size_t kHead = 66;  // Ethernet, IPv4, TCP with timestamps
constexpr uint16_t kSegment = 1448;
constexpr unsigned kBurst = 16;

bool g_counts = false;

/// What happens while one lives is counted, once the path is warm.
class Counted {
 public:
  Counted() { toggle(); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { toggle(); }

 private:
  static void toggle() {
    if (g_counts) CALLGRIND_TOGGLE_COLLECT;
  }
};

struct Kind {
  const char* name;
  decltype(&open_verbs) open;
  DeviceKind kind;
  bool stride = false;
};

class Devices : public testing::TestWithParam<Kind> {
 protected:
  OpenedEnds ends_;
  std::unique_ptr<Queue> queues_[2];
  FlowRule rules_[2];
  std::byte head_[kHead];
  RxDesc descs_[kBurst];

  static void SetUpTestSuite() {
    std::printf("made by: %s\n", VIREO_MADE_BY);
    unsetenv("SOFTNIC_WIRE");
    softnic_set_mtu(1500);
    softnic_drive(true);
  }
  void SetUp() override {
    ASSERT_TRUE(ends_.open(4096, [&](int side, Arena& arena) {
      const std::string name = "softnic" + std::to_string(side);
      return GetParam().open({.device = name, .mtu = 1500}, arena, {.stride = GetParam().stride});
    }));
    for (int side : {0, 1}) {
      auto queue = ends_.devices[side]->open_queue(QueueId(0), *ends_.pools[side]);
      ASSERT_TRUE(queue);
      queues_[side] = std::move(*queue);
      FlowKey key;
      key.proto = IpProto::kTcp;
      key.local = {IpAddr::any_v4(), kPort, 0};
      auto rule = ends_.devices[side]->steer(key, FlowTag(7), *queues_[side]);
      ASSERT_TRUE(rule);
      rules_[side] = std::move(*rule);
    }
    ASSERT_EQ(ends_.devices[0]->caps().kind, GetParam().kind);
  }
  void TearDown() override {
    for (FlowRule& r : rules_) r.reset();
    for (auto& q : queues_) q.reset();
  }

  /// Ethernet, IPv4 and TCP before a payload of `bytes`; the device fills the checksums in.
  void write_head(size_t bytes) {
    std::memset(head_, 0, sizeof head_);
    const auto put = [&](size_t at, size_t v) {
      head_[at] = static_cast<std::byte>(v >> 8);
      head_[at + 1] = static_cast<std::byte>(v);
    };
    put(12, 0x0800);
    put(14, 0x4500);
    put(16, kHead - 14 + bytes);
    put(22, 0x4006);  // TTL, TCP
    put(26, 0x0a00), put(28, 1), put(30, 0x0a00), put(32, 2);
    put(34, kPort), put(36, kPort);
    put(46, 0x8010);  // eight words, ACK
  }
  PacketRef body(int side, size_t bytes) {
    PacketRef p(ends_.pools[side]->take());
    p->length = static_cast<uint16_t>(bytes);
    return p;
  }
  bool send(int side, const PacketRef& p, Doorbell bell) {
    const PacketSlice slice{p.get(), p->data_at, p->length};
    return queues_[side]->tx({head_, {&slice, 1}}, bell);
  }
  unsigned take(int side) {
    Queue& q = *queues_[side];
    const unsigned n = q.rx_burst(descs_);
    q.tx_reap();
    q.rx_refill();
    return n;
  }
  void drop(unsigned n) {
    for (RxDesc& d : std::span(descs_).first(n)) d.packet.reset();
  }
  static void pump() {
    while (softnic_pump()) {
    }
  }

  template <class F>
  void count(const char* path, F&& round) {
    for (int i = 0; i < kWarmUp; ++i) round();
    CALLGRIND_ZERO_STATS;
    g_counts = true;
    for (int i = 0; i < kRounds; ++i) round();
    g_counts = false;
    const std::string name = std::string(GetParam().name) + ": " + path;
    CALLGRIND_DUMP_STATS_AT(name.c_str());
    std::printf("path: %s, %d rounds\n", name.c_str(), kRounds);
  }
  /// `n` frames of `bytes` go out by one doorbell, and as many come in.
  void exchange(const char* path, unsigned n, size_t bytes) {
    write_head(bytes);
    count(path, [&] {
      for (int side : {0, 1}) {
        PacketRef p = body(side, bytes);
        for (unsigned i = 0; i < n; ++i) {
          const Doorbell bell = i + 1 < n ? Doorbell::kLater : Doorbell::kNow;
          if (side == 1) {
            ASSERT_TRUE(send(side, p, bell));
            continue;
          }
          const Counted counted;
          ASSERT_TRUE(send(side, p, bell));
        }
        pump();
        unsigned came;
        if (side == 1) {
          const Counted counted;
          came = take(0);
        } else {
          came = take(1);
        }
        ASSERT_EQ(came, n);
        ASSERT_EQ(descs_[0].packet->length, kHead + bytes);
        ASSERT_TRUE(has(descs_[0].flags, RxFlags::kHasTag));
        drop(came);
      }
    });
  }
};

TEST_P(Devices, OneByte) { exchange("1 byte of TCP out and in", 1, 1); }

TEST_P(Devices, FullSegment) { exchange("a full-sized segment out and in", 1, kSegment); }

TEST_P(Devices, SmallBurst) {
  exchange("16 bytes of TCP, 16 times out and in at once", kBurst, 16);
}

TEST_P(Devices, SegmentBurst) {
  exchange("16 full-sized segments out and in at once", kBurst, kSegment);
}

TEST_P(Devices, IdlePoll) {
  count("a poll that finds nothing", [&] {
    const Counted counted;
    ASSERT_EQ(take(0), 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Each, Devices,
                         testing::Values(Kind{"verbs", open_verbs, DeviceKind::kVerbs},
                                         Kind{"mlx5", open_mlx5, DeviceKind::kMlx5},
                                         Kind{"striding", open_mlx5, DeviceKind::kMlx5, true}),
                         [](const auto& i) { return std::string(i.param.name); });

/// Libraries that the test is linked with are found by dlopen(3) under their names.
[[maybe_unused]] const auto kLinked = &mlx5dv_is_supported;

}  // namespace
}  // namespace vireo::test
