// Limit of answers per second to unknown peers: against amplification, and, as the number changes
// at random each second, against side channels that count answers.
// Owner: Engine. Thread: holder of the engine's lock. Source: RFC 5961 §7; CVE-2016-5696 for the
// randomness.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "core/flow_hash.h"

namespace vireo {

class ReplyLimit {
 public:
  /// @param most answers per second on average
  explicit ReplyLimit(uint32_t most) : most_(most), key_(FlowHashKey::random()) {}

  /// Takes one of this second's answers; false: none is left.
  bool allow(Instant now) noexcept {
    const int64_t second = now.ns() / 1'000'000'000;
    if (second != second_) {
      second_ = second;
      // Half of the number, plus a random part of up to the whole.
      left_ = most_ / 2 +
              static_cast<uint32_t>(siphash<1, 3>(key_, &second, sizeof second) % (most_ + 1));
    }
    if (left_ == 0) return false;
    --left_;
    return true;
  }

 private:
  uint32_t most_;
  uint32_t left_ = 0;
  int64_t second_ = -1;
  FlowHashKey key_;
};

}  // namespace vireo
