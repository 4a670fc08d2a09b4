// Runs a body with a fresh Peer under each pair of initial sequence numbers.
// Owner: the test. Thread: one.
#pragma once

#include <functional>

#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {

inline void each_iss(const std::function<void(Peer&)>& body, uint32_t frames = 512) {
  for (unsigned i = 0; i < 6; ++i) {
    SCOPED_TRACE("initial numbers " + std::to_string(i));
    Peer p(kIss[i], kIss[(i + 3) % 6], frames);
    body(p);
  }
}

inline uint64_t data_bytes(const std::vector<Out>& out) {
  uint64_t n = 0;
  for (const Out& o : out) n += o.data.size();
  return n;
}

}  // namespace vireo::tcp
