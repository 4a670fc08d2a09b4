// A received segment, as far as it must be answered by itself.
// Owner: the burst at hand. Guard: the engine's lock.
#pragma once

#include <cstddef>

#include "stack/wire/parse.h"

namespace vireo {

struct Port;

struct Incoming {
  Port& port;
  const wire::ParsedFrame& frame;
  const std::byte* eth;  ///< its Ethernet header
};

}  // namespace vireo
