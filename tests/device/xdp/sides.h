// The two to whom a frame from the wire may go: the queue of a steered end, or the kernel at it.
// Owner: the test. Thread: the test's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "end.h"
#include "lab.h"
#include "raw_port.h"

namespace vireo::test {

enum class To { kUs, kKernel };

struct Sides {
  explicit Sides(XdpMode mode)
      : end(veth.index(0), {.mode = mode, .rx_frames = 64, .tx_frames = 64}),
        is_open(veth.made() && end.device != nullptr && end.open_queue() && wire.open() &&
                kernel.open()) {}

  Device& device() { return *end.device; }
  Queue& queue() { return *end.queues[0]; }

  /// Who got the frame, as it was; nullopt: nobody did.
  std::optional<To> outcome(const Bytes& frame) {
    EXPECT_TRUE(wire.send(frame));
    RxDesc d;
    for (int tries = 0; tries < 200; ++tries) {
      const bool ours = queue().rx_burst({&d, 1}) != 0;
      const auto passed = kernel.receive(ours ? 5 : 10);
      EXPECT_FALSE(ours && passed) << "came twice";
      if (ours) {
        EXPECT_TRUE(std::ranges::equal(std::as_const(*d.packet).bytes(), frame))
            << "changed on the way";
        EXPECT_FALSE(has(d.flags, RxFlags::kHasTag));
        d.packet.reset();
        queue().rx_refill();
        return To::kUs;
      }
      if (passed) {
        // The tap shows frames without their outermost tag.
        const size_t tag =
            frame.size() >= 16 && frame[12] >= std::byte(0x81) && frame.size() != passed->size()
                ? 4
                : 0;
        EXPECT_EQ(passed->size(), frame.size() - tag);
        EXPECT_TRUE(std::equal(passed->rbegin(), passed->rend() - 12, frame.rbegin()))
            << "changed on the way";
        return To::kKernel;
      }
    }
    return std::nullopt;
  }

  Veth veth;
  End end;
  RawPort wire{veth.index(1)}, kernel{veth.index(0)};
  bool is_open;  ///< false: end.error, or a right is missing
};

}  // namespace vireo::test
