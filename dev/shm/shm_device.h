// A Device on a named shared-memory wire: the other end is a process of the same host
// (host_registry.h). Data moves by two copies and no system call; the kernel is asked only to wake
// a sleeping peer. The wire cannot corrupt, so checksums are not needed; every frame on it is ours,
// so rules only keep their keys. A full ring holds the sender back: nothing is lost. When the peer
// closes or dies, what it sent can still be read, then alive() is false for good: close, and open
// the name anew. Owner: the engine. Thread: holder of its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/result.h"
#include "dev/device.h"

namespace vireo {

struct ShmOptions {
  uint32_t slots = 256;  ///< frames in each direction, a power of two; the first to open decides
  uint32_t mtu = 1500;   ///< as above
};

/// Opens one end of wire `name`. Frames sent before the peer opens wait in the ring.
/// Errors: those of take_seat() in host_registry.h, EBUSY the wire has both its ends.
Result<std::unique_ptr<Device>> open_shm(std::string_view name, const ShmOptions& options = {});

}  // namespace vireo
