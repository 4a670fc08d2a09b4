// What a reply to a received segment needs.
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
