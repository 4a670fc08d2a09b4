// The contract on verbs over softnic: in lock-step, and on a shared-memory wire with both ends in
// this process.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "contract_burst.h"
#include "dev/softnic/control.h"
#include "dev/verbs/verbs.h"
#include "opened_ends.h"

namespace vireo::test {
namespace {

enum class World : uint8_t { kLockStep, kSharedWire };

class VerbsPair final : public DevicePair {
 public:
  VerbsPair(const PairOptions& o, World world, uint32_t mtu, VerbsOptions options) : world_(world) {
    const std::string wire = "contract-verbs-" + std::to_string(getpid());
    setenv("SOFTNIC_WIRE", world == World::kLockStep ? "" : (wire + "," + wire).c_str(), 1);
    softnic_set_mtu(mtu);
    options.tx_frames = o.tx_ring;
    options.rx_frames = o.rx_ring;
    ready_ = ends_.open(o.pool_frames, [&](int side, Arena& arena) {
      const std::string name = "softnic" + std::to_string(side);
      return open_verbs({.device = name, .mtu = mtu}, arena, options);
    });
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
  OpenedEnds ends_;
  bool ready_ = false;
};

ContractBackend backend(const char* name, World world, uint32_t mtu = 1500,
                        const VerbsOptions& options = {}) {
  return {name, [=](const PairOptions& o) -> std::unique_ptr<DevicePair> {
            auto pair = std::make_unique<VerbsPair>(o, world, mtu, options);
            if (!pair->ready()) return nullptr;
            return pair;
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, DeviceContract,
    ::testing::Values(backend("lock_step", World::kLockStep),
                      backend("nothing_inline", World::kLockStep, 1500, {.inline_bytes = 0}),
                      backend("each_signaled", World::kLockStep, 1500, {.signal_every = 1}),
                      backend("lock_step_jumbo", World::kLockStep, 9000),
                      backend("shared_wire", World::kSharedWire),
                      backend("shared_wire_jumbo", World::kSharedWire, 9000)),
    contract_name);

INSTANTIATE_TEST_SUITE_P(
    Verbs, BurstContract,
    ::testing::Values(backend("lock_step", World::kLockStep),
                      backend("nothing_inline", World::kLockStep, 1500, {.inline_bytes = 0}),
                      backend("each_signaled", World::kLockStep, 1500, {.signal_every = 1}),
                      backend("shared_wire", World::kSharedWire)),
    contract_name);

}  // namespace
}  // namespace vireo::test
