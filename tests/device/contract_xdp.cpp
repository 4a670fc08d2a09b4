// The contract on AF_XDP over a veth pair, in each mode that a veth has.
#include <optional>

#include "contract.h"
#include "core/arena.h"
#include "dev/xdp/xdp.h"
#include "xdp/lab.h"

namespace vireo::test {
namespace {

class XdpPair final : public DevicePair {
 public:
  XdpPair(const PairOptions& o, XdpOptions options, uint32_t mtu) : veth_({.mtu = mtu}) {
    if (!veth_.made()) return;
    options.rx_frames = o.rx_ring;
    options.tx_frames = o.tx_ring;
    for (int side : {0, 1}) {
      auto arena = Arena::create(o.pool_frames * size_t{2048}, false);
      if (!arena) return;
      arenas_[side] = std::move(*arena);
      pools_[side].emplace(arenas_[side].bytes().first(o.pool_frames * size_t{2048}), 2048U);
      auto device = open_xdp(veth_.index(side), arenas_[side], options);
      if (!device) {
        ADD_FAILURE() << device.error().where << ": " << strerror(device.error().code);
        return;
      }
      devices_[side] = std::move(*device);
    }
    ready_ = true;
  }

  bool ready() const { return ready_; }
  Device& device(int side) override { return *devices_[side]; }
  PacketPool& pool(int side) override { return *pools_[side]; }
  bool unplug(int) override {
    veth_.remove();
    return true;
  }

 private:
  Veth veth_;
  Arena arenas_[2];
  std::optional<PacketPool> pools_[2];
  std::unique_ptr<Device> devices_[2];
  bool ready_ = false;
};

ContractBackend backend(const char* name, const XdpOptions& options, uint32_t mtu = 1500) {
  return {name, [=](const PairOptions& o) -> std::unique_ptr<DevicePair> {
            if (!enter_own_namespace()) return nullptr;
            auto pair = std::make_unique<XdpPair>(o, options, mtu);
            if (!pair->ready()) return nullptr;
            return pair;
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Xdp, DeviceContract,
    ::testing::Values(backend("auto_mode", {}), backend("native", {.mode = XdpMode::kNative}),
                      backend("generic", {.mode = XdpMode::kGeneric}),
                      backend("tags", {.tags = true}),
                      backend("always_kick", {.need_wakeup = false}),
                      backend("busy_poll", {.busy_poll_us = 20}), backend("jumbo", {}, 9000),
                      backend("jumbo_generic", {.mode = XdpMode::kGeneric}, 9000)),
    contract_name);

}  // namespace
}  // namespace vireo::test
