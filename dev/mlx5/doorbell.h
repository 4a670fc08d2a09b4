// Writes to the device's registers. Owner: none. Thread: the register's only writer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dev/mlx5/barrier.h"

namespace vireo::mlx5 {

/// Writes eight bytes at once; `value` is in the device's byte order.
inline void write_register(std::byte* reg, uint64_t value) noexcept {
  order_register_write();
  __atomic_store_n(reinterpret_cast<uint64_t*>(reg), value, __ATOMIC_RELEASE);
  order_register_write();
}

/// BlueFlame: writes whole 64-byte blocks, each of which the processor combines into one transfer,
/// so that the device need not read them from memory. Excluded from ThreadSanitizer: this memory is
/// not shared.
__attribute__((no_sanitize("thread"))) inline void write_blocks(std::byte* reg,
                                                                const std::byte* from,
                                                                uint32_t blocks) noexcept {
  using Quad [[gnu::vector_size(16), gnu::may_alias]] = uint64_t;
  order_register_write();
  auto* to = reinterpret_cast<volatile Quad*>(reg);
  const auto* quad = reinterpret_cast<const Quad*>(from);
  for (uint32_t i = 0; i < 4 * blocks; ++i) to[i] = quad[i];
  order_register_write();
}

}  // namespace vireo::mlx5
