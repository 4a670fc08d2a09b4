// Packet memory that several processes share: who has each frame. A member that ends, or is killed,
// leaves a complete record of what it had. In memory that all members map; a process with packet
// memory of its own has none of this.
// Owner: the group of processes. Thread: each byte is written by who has the frame; exceptions are
// at the writer.
#pragma once

#include <cstdint>
#include <span>

namespace vireo {

struct FrameOwners {
  /// Values of `owner`.
  static constexpr uint8_t kNobody = 0;
  /// Its owner is gone, but the kernel may still read it.
  static constexpr uint8_t kGone = 127;
  static constexpr uint8_t of_member(unsigned slot) { return static_cast<uint8_t>(1 + slot); }
  /// In a FILL ring, at the driver, or in an RX ring.
  static constexpr uint8_t of_queue(unsigned queue) { return static_cast<uint8_t>(128 + queue); }

  std::span<uint8_t> owner;       ///< by frame
  std::span<uint16_t> in_flight;  ///< by frame: descriptors from a TX ring to their owner's return
  uint8_t me = kNobody;

  explicit operator bool() const { return !owner.empty(); }
};

}  // namespace vireo
