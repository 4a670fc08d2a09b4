// Notes with a payload: what a thread leaves for the holder of the engine's lock instead of waiting
// for it. Owner: Engine. Thread: put() any; take() holder of the lock.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "core/mpsc.h"
#include "core/types.h"

namespace vireo {

/// Bytes for a TCP connection. `generation` is the flow's at the time: a note for a flow that is
/// gone is dropped, as data sent to a connection that a close() raced would be.
struct SendNote {
  static constexpr uint32_t kCapacity = 2048 - 12;
  FlowTag flow{};
  uint32_t generation = 0;
  uint32_t length = 0;
  std::byte bytes[kCapacity];
};
static_assert(sizeof(SendNote) == 2048);

}  // namespace vireo
