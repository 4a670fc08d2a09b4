// The shared memory of a wire between two processes of a host: a header, then a ring for each
// direction.
//
//   | WireHeader | RingControl 0 | RingControl 1 | slots of ring 0 | slots of ring 1 |
//
// Ring 0 carries the frames of the host end, ring 1 those of the joining end. A slot holds a
// sequence number and then the frame, so that a receiver polls one cache line, which also contains
// the start of the frame. Owner: both ends map it; the writer of each cache line is stated there.
// Thread: one at each end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vireo {

inline constexpr uint64_t kWireMagic = 0x6572'6977'6f72'6976;  // "viro" "wire", little-endian
inline constexpr uint32_t kWireVersion = 1;                    // of this layout

struct alignas(64) WireHeader {
  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t slots = 0;                  ///< of each ring, a power of two
  uint32_t stride = 0;                 ///< bytes from slot to slot
  uint32_t mtu = 0;                    ///< largest IP packet
  std::atomic<uint32_t> gone[2] = {};  ///< set by the end that closes: host, joiner
};

struct alignas(64) RingControl {
  /// Frames taken. Written by the receiver; read by the sender when the ring seems full.
  alignas(64) std::atomic<uint64_t> taken{0};
  /// Waking bits: how the receiver, before it sleeps, wants to be woken. Set by the receiver,
  /// cleared by the one that wakes it.
  alignas(64) std::atomic<uint32_t> armed{0};
};

/// Bits of RingControl::armed.
enum Waking : uint32_t {
  kByBell = 1,  ///< by ShmBell::ring()
  kByWord = 2,  ///< it waits on the word itself, by futex(2)
};

/// The bytes of the frame follow.
struct WireSlot {
  std::atomic<uint64_t>
      sequence;  ///< frame number + 1 once the frame is complete; written by the sender
  uint32_t length;
  uint32_t reserved;
  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
};

static_assert(sizeof(WireHeader) == 64 && sizeof(RingControl) == 128 && sizeof(WireSlot) == 16);
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

inline constexpr size_t kRingsAt = 64;
inline constexpr size_t kSlotsAt = 512;

/// Slot size for an MTU: a frame with two VLAN tags, or any head (Queue::head_place). An odd number
/// of line pairs, so that slots spread over the cache sets.
constexpr uint32_t slot_stride(uint32_t mtu) {
  constexpr uint32_t kPair = 128, kFraming = 22, kMin = 2;
  const uint32_t pairs =
      (static_cast<uint32_t>(sizeof(WireSlot)) + kFraming + mtu + kPair - 1) / kPair;
  return (std::max(pairs, kMin) | 1) * kPair;
}

constexpr size_t wire_bytes(uint32_t slots, uint32_t stride) {
  return kSlotsAt + size_t{2} * slots * stride;
}

}  // namespace vireo
