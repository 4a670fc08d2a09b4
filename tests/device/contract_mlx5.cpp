// The contract on mlx5 over softnic: with both ends in this process, on a wire of its own and on a
// shared-memory wire.
#include <infiniband/mlx5dv.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "contract_burst.h"
#include "dev/mlx5/mlx5.h"
#include "opened_ends.h"
#include "tests/apparatus/softnic/control.h"

namespace vireo::test {
namespace {

enum class World : uint8_t { kLocalWire, kSharedWire };

class Mlx5Pair final : public DevicePair {
 public:
  Mlx5Pair(const PairOptions& o, World world, uint32_t mtu, VerbsOptions options) {
    const std::string wire = "contract-mlx5-" + std::to_string(getpid());
    setenv("SOFTNIC_WIRE", world == World::kLocalWire ? "" : (wire + "," + wire).c_str(), 1);
    softnic_set_mtu(mtu);
    softnic_drive(false);
    ibv_device** list = ibv_get_device_list(nullptr);
    std::copy_n(list, 2, nics_);  // they stay
    ibv_free_device_list(list);
    options.tx_frames = o.tx_ring;
    options.rx_frames = o.rx_ring;
    ready_ = ends_.open(o.pool_frames, [&](int side, Arena& arena) {
      const std::string name = "softnic" + std::to_string(side);
      return open_mlx5({.device = name, .mtu = mtu}, arena, options);
    });
    for (const auto& d : ends_.devices)
      if (ready_) {
        EXPECT_EQ(d->caps().kind, DeviceKind::kMlx5) << "it fell back";
      }
  }

  bool ready() const { return ready_; }
  Device& device(int side) override { return *ends_.devices[side]; }
  PacketPool& pool(int side) override { return *ends_.pools[side]; }
  /// Does what the devices' thread would do in its own time. Nothing is under way when there is
  /// nothing to do and that thread has not done anything either since the caller last looked.
  bool progress() override {
    const bool any = softnic_pump();
    const uint64_t before = std::exchange(frames_, frames());
    return any || frames_ != before;
  }
  bool unplug(int side) override {
    softnic_remove(nics_[side]);
    return true;
  }

 private:
  /// That went anywhere.
  uint64_t frames() const {
    uint64_t n = 0;
    for (ibv_device* nic : nics_) {
      const softnic_counts c = softnic_counts_of(nic);
      n += c.tx_frames + c.rx_frames + c.rx_no_rule + c.rx_no_receive;
    }
    return n;
  }

  ibv_device* nics_[2];
  uint64_t frames_ = 0;
  OpenedEnds ends_;
  bool ready_ = false;
};

ContractBackend backend(const char* name, World world, uint32_t mtu = 1500,
                        const VerbsOptions& options = {}) {
  return {name, [=](const PairOptions& o) -> std::unique_ptr<DevicePair> {
            auto pair = std::make_unique<Mlx5Pair>(o, world, mtu, options);
            if (!pair->ready()) return nullptr;
            return pair;
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Mlx5, DeviceContract,
    ::testing::Values(backend("local_wire", World::kLocalWire),
                      backend("nothing_inline", World::kLocalWire, 1500, {.inline_bytes = 0}),
                      backend("much_inline", World::kLocalWire, 1500, {.inline_bytes = 884}),
                      backend("each_signaled", World::kLocalWire, 1500, {.signal_every = 1}),
                      backend("compressed", World::kLocalWire, 1500, {.compress = true}),
                      backend("local_wire_jumbo", World::kLocalWire, 9000),
                      backend("compressed_jumbo", World::kLocalWire, 9000, {.compress = true}),
                      backend("shared_wire", World::kSharedWire),
                      backend("shared_wire_jumbo", World::kSharedWire, 9000),
                      backend("striding", World::kLocalWire, 1500, {.stride = true}),
                      backend("striding_jumbo", World::kLocalWire, 9000, {.stride = true}),
                      backend("striding_shared_wire", World::kSharedWire, 1500, {.stride = true}),
                      backend("striding_shared_wire_jumbo", World::kSharedWire, 9000,
                              {.stride = true}),
                      backend("lro", World::kLocalWire, 1500, {.lro = true}),
                      backend("lro_jumbo", World::kLocalWire, 9000, {.lro = true}),
                      backend("lro_shared_wire", World::kSharedWire, 1500, {.lro = true})),
    contract_name);

INSTANTIATE_TEST_SUITE_P(
    Mlx5, BurstContract,
    ::testing::Values(backend("local_wire", World::kLocalWire),
                      backend("nothing_inline", World::kLocalWire, 1500, {.inline_bytes = 0}),
                      backend("each_signaled", World::kLocalWire, 1500, {.signal_every = 1}),
                      backend("shared_wire", World::kSharedWire),
                      // Without LRO: bursts would come back as the packets that they were cut from.
                      backend("striding", World::kLocalWire, 1500, {.stride = true})),
    contract_name);

TEST(Mlx5, WithoutRingsItIsTheVerbsDevice) {
  unsetenv("SOFTNIC_WIRE");
  softnic_refuse_rings(true);
  OpenedEnds ends;
  ASSERT_TRUE(ends.open(256, [&](int side, Arena& arena) {
    return open_mlx5({.device = side == 0 ? "softnic0" : "softnic1", .mtu = 1500}, arena, {});
  }));
  std::unique_ptr<Queue> queues[2];
  for (int side : {0, 1}) {
    auto queue = ends.devices[side]->open_queue(QueueId(0), *ends.pools[side]);
    ASSERT_TRUE(queue) << queue.error().where;
    queues[side] = std::move(*queue);
    EXPECT_EQ(ends.devices[side]->caps().kind, DeviceKind::kVerbs);
    EXPECT_STREQ(ends.devices[side]->caps().mode, "verbs");
    EXPECT_TRUE(ends.devices[side]->caps().tags);
  }
  FrameSpec spec;
  spec.from = {IpAddr::v4(be32(0x0a000001)), 6000, 0};
  spec.to = {IpAddr::v4(be32(0x0a000002)), 7000, 0};
  const Bytes bytes = build_frame(spec, Bytes(64));
  FlowKey key;
  key.proto = IpProto::kUdp;
  key.local = {IpAddr::any_v4(), 7000, 0};
  const auto rule = ends.devices[1]->steer(key, FlowTag(1), *queues[1]);
  ASSERT_TRUE(rule);
  ASSERT_TRUE(queues[0]->tx({bytes, {}}, Doorbell::kNow));
  RxDesc got[1];
  ASSERT_EQ(queues[1]->rx_burst(got), 1U) << "by calls, in lock-step";
  EXPECT_EQ(got[0].packet->length, bytes.size());
  EXPECT_TRUE(has(got[0].flags, RxFlags::kHasTag));
  EXPECT_EQ(got[0].tag, FlowTag(1));
  got[0].packet.reset();
  softnic_refuse_rings(false);
}

/// Of a device that lacks `what`, once its queue is open.
DeviceCaps caps_without(const char* what) {
  unsetenv("SOFTNIC_WIRE");
  setenv("SOFTNIC_LACKS", what, 1);
  OpenedEnds ends;
  DeviceCaps caps;
  EXPECT_TRUE(ends.open(256, [](int side, Arena& arena) {
    return open_mlx5({.device = side == 0 ? "softnic0" : "softnic1"}, arena, {});
  }));
  const auto queue = ends.devices[0]->open_queue(QueueId(0), *ends.pools[0]);
  EXPECT_TRUE(queue) << queue.error().where;
  caps = ends.devices[0]->caps();
  unsetenv("SOFTNIC_LACKS");
  return caps;
}

TEST(Mlx5, InlineIsAsMuchAsWasGranted) {
  EXPECT_EQ(caps_without("").inline_bytes, 204);
  EXPECT_EQ(caps_without("inline").inline_bytes, 51) << "half of the half";
}

TEST(Mlx5, SegmentationThatIsRefusedWithThePairIsDoneWithout) {
  EXPECT_GT(caps_without("").tso_max_bytes, 0U);
  const DeviceCaps caps = caps_without("tsopairs");
  EXPECT_EQ(caps.tso_max_bytes, 0U);
  EXPECT_EQ(caps.inline_bytes, 204) << "nothing else is done without";
}

/// Libraries that the test is linked with are found by dlopen(3) under their names.
[[maybe_unused]] const auto kLinked = &mlx5dv_is_supported;

}  // namespace
}  // namespace vireo::test
