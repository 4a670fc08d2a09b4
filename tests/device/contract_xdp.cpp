// The contract on AF_XDP over a veth pair, in each mode that a veth has.
#include "contract.h"
#include "dev/xdp/xdp.h"
#include "opened_ends.h"
#include "xdp/lab.h"

namespace vireo::test {
namespace {

class XdpPair final : public DevicePair {
 public:
  XdpPair(const PairOptions& o, XdpOptions options, uint32_t mtu) : veth_({.mtu = mtu}) {
    if (!veth_.made()) return;
    options.rx_frames = o.rx_ring;
    options.tx_frames = o.tx_ring;
    ready_ = ends_.open(o.pool_frames, [&](int side, Arena& arena) {
      return open_xdp(veth_.index(side), arena, options);
    });
  }

  bool ready() const { return ready_; }
  Device& device(int side) override { return *ends_.devices[side]; }
  PacketPool& pool(int side) override { return *ends_.pools[side]; }
  bool unplug(int) override {
    veth_.remove();
    return true;
  }

 private:
  Veth veth_;
  OpenedEnds ends_;
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
