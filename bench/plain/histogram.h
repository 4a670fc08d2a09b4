// Counts of durations in buckets whose width grows with the value: 128 for each doubling, so a
// value read from it is off by less than 1 %, and adding one is an index and an increment.
// bench/benchkit/histogram.py reads what it prints. Owner and thread: the measurement.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace plain {

class Histogram {
 public:
  static constexpr unsigned kSubBits = 7;
  static constexpr uint64_t kSub = uint64_t{1} << kSubBits;

  Histogram() : counts_((64 - kSubBits + 1) * kSub) {}

  void add(uint64_t value) {
    ++counts_[bucket(value)];
    ++total_;
  }
  uint64_t total() const { return total_; }

  /// Values below kSub have a bucket each; above, the leading one and the kSubBits bits behind it
  /// are the index.
  static size_t bucket(uint64_t value) {
    if (value < kSub) return static_cast<size_t>(value);
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - 1 - kSubBits;
    return static_cast<size_t>((uint64_t{shift} << kSubBits) + (value >> shift));
  }

  /// `"NAME":{"unit_ns":U,"buckets":[[INDEX,COUNT],...]}`, one tick being U nanoseconds.
  void print(const char* name, double ns_per_tick) const {
    std::printf("\"%s\":{\"unit_ns\":%.9g,\"buckets\":[", name, ns_per_tick);
    const char* separator = "";
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] == 0) continue;
      std::printf("%s[%zu,%llu]", separator, i, static_cast<unsigned long long>(counts_[i]));
      separator = ",";
    }
    std::printf("]}");
  }

 private:
  std::vector<uint64_t> counts_;
  uint64_t total_ = 0;
};

}  // namespace plain
