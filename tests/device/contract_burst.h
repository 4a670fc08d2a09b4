// The part of the device contract that devices which segment owe (dev/device.h, TxFrame::mss); a
// back end joins as with DeviceContract, in contract.h.
// Owner: the test. Thread: the test's.
#pragma once

#include "contract.h"

namespace vireo::test {

/// As DeviceContract, with TCP to the steered port as well.
class BurstContract : public DeviceContract {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// TCP from 0 to 1; its numbers wrap within a burst.
  FrameSpec tcp(bool v6 = false) const;
  unsigned most_slices() { return pair_->device(0).caps().max_body_slices; }
  /// Frames of the pool that hold `bytes`, `each` in one.
  std::vector<PacketRef> bodies(const Bytes& bytes, size_t each);
  bool send_burst(const FrameSpec& spec, const Bytes& payload, const std::vector<PacketRef>& bodies,
                  uint16_t mss, Doorbell bell = Doorbell::kNow);
  /// The frames that it becomes.
  static std::vector<Bytes> cut(FrameSpec spec, const Bytes& payload, size_t mss);
  /// They come, and no others.
  void expect(const std::vector<Bytes>& frames);

 private:
  std::vector<FlowRule> tcp_rules_;
};

}  // namespace vireo::test
