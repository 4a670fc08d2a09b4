// For a pair whose sides each open a device: what both have, in the order in which it must end.
// Owner: the pair. Thread: the test's.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>

#include "core/arena.h"
#include "core/packet.h"
#include "core/result.h"
#include "dev/device.h"

namespace vireo::test {

struct OpenedEnds {
  Arena arenas[2];
  std::optional<PacketPool> pools[2];
  std::unique_ptr<Device> devices[2];

  /// On each side an arena that is all pool, and the device that `open_device(side, arena)` gives.
  /// @return false: no memory, or a device was refused, which fails the test.
  template <class Open>
  bool open(uint32_t pool_frames, Open open_device) {
    constexpr uint32_t kFrameBytes = 2048;
    const size_t bytes = pool_frames * size_t{kFrameBytes};
    for (int side : {0, 1}) {
      auto arena = Arena::create(bytes, false);
      if (!arena) return false;
      arenas[side] = std::move(*arena);
      pools[side].emplace(arenas[side].bytes().first(bytes), kFrameBytes);
      auto device = open_device(side, arenas[side]);
      if (!device) {
        ADD_FAILURE() << device.error().where << ": " << strerror(device.error().code);
        return false;
      }
      devices[side] = std::move(*device);
    }
    return true;
  }
};

}  // namespace vireo::test
