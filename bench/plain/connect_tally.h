// What the clients of connect-exchange-close print: how long each connection took, and how many
// were closed in each twentieth of the time, which tells whether the rate falls as TIME_WAIT
// entries gather. Owner and thread: the measurement.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "clock.h"
#include "histogram.h"

namespace plain {

class ConnectTally {
 public:
  explicit ConnectTally(double seconds)
      : begin_(ticks()), slot_(std::max<uint64_t>(1, rate_.of_seconds(seconds / kSlots))) {}
  /// One connection, opened at `start`, is closed.
  void add(uint64_t start) {
    const uint64_t now = ticks();
    const uint64_t i = (now - begin_) / slot_;
    if (i < kSlots) ++slots_[i];
    took_.add(now - start);
  }
  bool is_over() const { return ticks() - begin_ >= slot_ * kSlots; }
  void print() const {
    std::printf("{\"slot_s\":%.6f,\"slots\":[",
                static_cast<double>(slot_) * rate_.ns_per_tick() / 1e9);
    uint64_t all = 0;
    for (size_t i = 0; i < kSlots; ++i) {
      std::printf("%s%llu", i == 0 ? "" : ",", static_cast<unsigned long long>(slots_[i]));
      all += slots_[i];
    }
    std::printf("],\"connections\":%llu,", static_cast<unsigned long long>(all));
    took_.print("connection", rate_.ns_per_tick());
    std::printf("}\n");
  }

 private:
  static constexpr size_t kSlots = 20;

  TickRate rate_;
  Histogram took_;
  uint64_t begin_, slot_;
  std::array<uint64_t, kSlots> slots_{};
};

}  // namespace plain
