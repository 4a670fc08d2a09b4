// The contract on the mem link, in the shapes that its options give it.
#include "contract_burst.h"
#include "tests/apparatus/mem/mem_link.h"

namespace vireo::test {
namespace {

class MemPair final : public DevicePair {
 public:
  MemPair(const PairOptions& o, MemDeviceOptions device, const MemImpairments& wire)
      : memory_{std::vector<std::byte>(o.pool_frames * size_t{2048}),
                std::vector<std::byte>(o.pool_frames * size_t{2048})},
        pools_{{memory_[0], 2048}, {memory_[1], 2048}},
        link_(1, wire, wire, clock_, sized(device, o)) {}

  Device& device(int side) override { return link_.device(static_cast<MemEnd>(side)); }
  PacketPool& pool(int side) override { return pools_[side]; }
  bool progress() override {
    const Instant next = link_.next_event();
    if (next.is_never()) return false;
    link_.step(std::max(next, clock_.now()));
    return true;
  }
  bool unplug(int side) override {
    link_.unplug(static_cast<MemEnd>(side));
    return true;
  }

 private:
  static MemDeviceOptions sized(MemDeviceOptions d, const PairOptions& o) {
    d.tx_ring = o.tx_ring;
    d.rx_ring = o.rx_ring;
    return d;
  }
  std::vector<std::byte> memory_[2];
  PacketPool pools_[2];
  VirtualClock clock_;
  MemLink link_;
};

ContractBackend backend(const char* name, const MemDeviceOptions& device,
                        const MemImpairments& wire = {}) {
  return {name, [=](const PairOptions& o) { return std::make_unique<MemPair>(o, device, wire); }};
}

INSTANTIATE_TEST_SUITE_P(
    Mem, DeviceContract,
    ::testing::Values(
        backend("direct", {}),
        backend("late_completion", {.tx_time = Duration::us(10)}, {.delay = Duration::us(20)}),
        backend("inline_head",
                {.tx_time = Duration::us(3), .inline_head = true, .max_body_slices = 4}),
        backend(
            "slow_wire", {},
            {.delay = Duration::us(5), .jitter = Duration::us(50), .bytes_per_second = 10'000'000}),
        backend("no_tags_no_checksums", {.tags = false, .checksums = Checksum::kNotNeeded}),
        backend("jumbo", {.mtu = 9000}, {.mtu = 9000})),
    contract_name);

constexpr MemDeviceOptions kSegments{.tx_time = Duration::us(3),
                                     .inline_head = true,
                                     .max_body_slices = 16,
                                     .tso_max_bytes = 262'144};

INSTANTIATE_TEST_SUITE_P(MemSegmenting, DeviceContract,
                         ::testing::Values(backend("segmenting", kSegments)), contract_name);
INSTANTIATE_TEST_SUITE_P(Mem, BurstContract, ::testing::Values(backend("segmenting", kSegments)),
                         contract_name);

}  // namespace
}  // namespace vireo::test
