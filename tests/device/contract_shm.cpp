// The contract on a shared-memory wire with both ends in this process.
#include <unistd.h>

#include <string>

#include "contract.h"
#include "dev/shm/shm_device.h"

namespace vireo::test {
namespace {

class ShmPair final : public DevicePair {
 public:
  ShmPair(const PairOptions& o, uint32_t mtu)
      : memory_{std::vector<std::byte>(o.pool_frames * size_t{2048}),
                std::vector<std::byte>(o.pool_frames * size_t{2048})},
        pools_{{memory_[0], 2048}, {memory_[1], 2048}} {
    const std::string name = "contract-" + std::to_string(getpid());
    for (auto& d : devices_) {
      auto opened = open_shm(name, {.slots = o.tx_ring, .mtu = mtu});
      EXPECT_TRUE(opened) << opened.error().where << " " << opened.error().code;
      if (opened) d = std::move(*opened);
    }
  }
  Device& device(int side) override { return *devices_[side]; }
  PacketPool& pool(int side) override { return pools_[side]; }
  Milliseconds quiet() const override { return Milliseconds(5); }
  bool filters() const override { return false; }

 private:
  std::vector<std::byte> memory_[2];
  PacketPool pools_[2];
  std::unique_ptr<Device> devices_[2];
};

ContractBackend backend(const char* name, uint32_t mtu) {
  return {name, [mtu](const PairOptions& o) { return std::make_unique<ShmPair>(o, mtu); }};
}

INSTANTIATE_TEST_SUITE_P(Shm, DeviceContract,
                         ::testing::Values(backend("plain", 1500), backend("jumbo", 9000)),
                         contract_name);

}  // namespace
}  // namespace vireo::test
