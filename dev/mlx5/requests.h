// Posted receive requests and the frames of each. For a striding queue it counts strides; their
// frames belong to its runs (runs.h).
// Owner: Mlx5Queue. Thread: holder of the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/packet.h"

namespace vireo::mlx5 {

struct Requests {
  Requests(uint32_t ring, uint32_t frames_each)
      : mask(ring - 1), each(frames_each), frames(new PacketBuf*[size_t{ring} * frames_each]) {}
  PacketBuf** frames_of(uint32_t request) { return &frames[size_t{request & mask} * each]; }
  uint32_t count() const { return posted - taken; }

  const uint32_t mask;
  const uint32_t each;
  std::unique_ptr<PacketBuf*[]> frames;
  uint32_t posted = 0, taken = 0;  ///< since the QP was last restarted
};

}  // namespace vireo::mlx5
