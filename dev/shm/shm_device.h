// A Device on a named shared-memory wire whose other end is a process of the same host
// (host_registry.h). Data is copied twice without a system call; only waking a sleeping peer needs
// one. The wire cannot corrupt, so checksums are not needed. Every frame is ours, so rules only
// record their keys. A full ring blocks the sender: nothing is lost. When the peer closes or dies,
// its frames can still be read; then alive() stays false: close the device and open the name again.
// Owner: the engine. Thread: holder of its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/result.h"
#include "dev/device.h"

namespace vireo {

struct ShmOptions {
  uint32_t slots = 256;  ///< per direction, a power of two; the first to open decides
  uint32_t mtu = 1500;   ///< the first to open decides
};

/// Opens one end of wire `name`. Frames sent before the peer opens wait in the ring.
/// Errors: those of take_seat() in host_registry.h, EBUSY if both ends are taken.
Result<std::unique_ptr<Device>> open_shm(std::string_view name, const ShmOptions& options = {});

}  // namespace vireo
