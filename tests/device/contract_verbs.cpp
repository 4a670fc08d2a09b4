// The contract on verbs over softnic: in lock-step, and on a shared-memory wire with both ends in
// this process; with extended completion queues, with such that tell no tags, and with plain ones.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "contract_burst.h"
#include "dev/verbs/verbs.h"
#include "opened_ends.h"
#include "tests/apparatus/softnic/control.h"

namespace vireo::test {
namespace {

enum class World : uint8_t { kLockStep, kSharedWire };

/// As verbs.
struct Variant {
  uint32_t mtu = 1500;
  VerbsOptions options = {};
  const char* lacks = "";  ///< SOFTNIC_LACKS
};

class VerbsPair final : public DevicePair {
 public:
  VerbsPair(const PairOptions& o, World world, const Variant& v)
      : world_(world), tells_tags_(*v.lacks == '\0') {
    const uint32_t mtu = v.mtu;
    VerbsOptions options = v.options;
    const std::string wire = "contract-verbs-" + std::to_string(getpid());
    setenv("SOFTNIC_LACKS", v.lacks, 1);
    setenv("SOFTNIC_WIRE", world == World::kLockStep ? "" : (wire + "," + wire).c_str(), 1);
    softnic_set_mtu(mtu);
    options.tx_frames = o.tx_ring;
    options.rx_frames = o.rx_ring;
    ready_ = ends_.open(o.pool_frames, [&](int side, Arena& arena) {
      const std::string name = "softnic" + std::to_string(side);
      return open_verbs({.device = name, .mtu = mtu}, arena, options);
    });
  }

  ~VerbsPair() override {
    unsetenv("SOFTNIC_LACKS");
    if (!ready_) return;
    // Queues were opened, with what the device has.
    EXPECT_EQ(ends_.devices[0]->caps().tags, tells_tags_);
  }

  bool ready() const { return ready_; }
  Device& device(int side) override { return *ends_.devices[side]; }
  PacketPool& pool(int side) override { return *ends_.pools[side]; }
  bool progress() override { return world_ == World::kSharedWire; }
  Milliseconds quiet() const override { return Milliseconds(5); }
  bool unplug(int side) override {
    ibv_device** list = ibv_get_device_list(nullptr);
    softnic_remove(list[side]);
    ibv_free_device_list(list);
    return true;
  }

 private:
  const World world_;
  const bool tells_tags_;
  OpenedEnds ends_;
  bool ready_ = false;
};

ContractBackend backend(const char* name, World world, const Variant& variant = {}) {
  return {name, [=](const PairOptions& o) -> std::unique_ptr<DevicePair> {
            auto pair = std::make_unique<VerbsPair>(o, world, variant);
            if (!pair->ready()) return nullptr;
            return pair;
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, DeviceContract,
    ::testing::Values(backend("lock_step", World::kLockStep),
                      backend("nothing_inline", World::kLockStep, {.options = {.inline_bytes = 0}}),
                      backend("each_signaled", World::kLockStep, {.options = {.signal_every = 1}}),
                      backend("lock_step_jumbo", World::kLockStep, {.mtu = 9000}),
                      backend("without_tags", World::kLockStep, {.lacks = "tags"}),
                      backend("plain_completions", World::kLockStep, {.lacks = "extended"}),
                      backend("plain_completions_jumbo", World::kLockStep,
                              {.mtu = 9000, .lacks = "extended"}),
                      backend("shared_wire", World::kSharedWire),
                      backend("shared_wire_plain", World::kSharedWire, {.lacks = "extended"}),
                      backend("shared_wire_jumbo", World::kSharedWire, {.mtu = 9000})),
    contract_name);

INSTANTIATE_TEST_SUITE_P(
    Verbs, BurstContract,
    ::testing::Values(backend("lock_step", World::kLockStep),
                      backend("nothing_inline", World::kLockStep, {.options = {.inline_bytes = 0}}),
                      backend("each_signaled", World::kLockStep, {.options = {.signal_every = 1}}),
                      backend("plain_completions", World::kLockStep, {.lacks = "extended"}),
                      backend("shared_wire", World::kSharedWire)),
    contract_name);

/// Of a device that lacks `what`, once its queue is open.
DeviceCaps caps_without(const char* what) {
  unsetenv("SOFTNIC_WIRE");
  setenv("SOFTNIC_LACKS", what, 1);
  OpenedEnds ends;
  DeviceCaps caps;
  EXPECT_TRUE(ends.open(256, [](int side, Arena& arena) {
    return open_verbs({.device = side == 0 ? "softnic0" : "softnic1"}, arena, {});
  }));
  const auto queue = ends.devices[0]->open_queue(QueueId(0), *ends.pools[0]);
  EXPECT_TRUE(queue) << queue.error().where;
  caps = ends.devices[0]->caps();
  unsetenv("SOFTNIC_LACKS");
  return caps;
}

TEST(Verbs, InlineIsAsMuchAsWasGranted) {
  EXPECT_EQ(caps_without("").inline_bytes, 204);
  EXPECT_EQ(caps_without("inline").inline_bytes, 51) << "half of the half";
}

TEST(Verbs, SegmentationThatIsRefusedWithThePairIsDoneWithout) {
  EXPECT_GT(caps_without("").tso_max_bytes, 0U);
  const DeviceCaps caps = caps_without("tsopairs");
  EXPECT_EQ(caps.tso_max_bytes, 0U);
  EXPECT_EQ(caps.inline_bytes, 204) << "nothing else is done without";
}

}  // namespace
}  // namespace vireo::test
