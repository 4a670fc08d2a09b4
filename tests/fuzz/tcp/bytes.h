// The fuzzer's input, read as a stream of small numbers; at its end every number is 0.
// Owner: one run. Thread: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace vireo::fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return at_ == size_; }
  uint8_t u8() { return at_ < size_ ? data_[at_++] : uint8_t{0}; }
  uint16_t u16() {
    const uint8_t high = u8();
    return static_cast<uint16_t>(high << 8 | u8());
  }
  uint32_t u32() {
    const uint32_t high = u16();
    return high << 16 | u16();
  }
  bool flag() { return (u8() & 1) != 0; }
  uint32_t below(uint32_t n) { return n <= 256 ? u8() % n : u16() % n; }
  /// One of a table.
  template <class T, size_t N>
  T pick(const T (&all)[N]) {
    return all[u8() % N];
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

/// What must hold; a breach ends the run as a crash, which libFuzzer and the replay both report.
inline void require(bool ok, const char* what) {
  if (ok) [[likely]]
    return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

/// Byte `i` of the stream that `side` sends.
inline std::byte stream_byte(unsigned side, uint64_t i) {
  uint64_t x = (i >> 3) + (side == 0 ? 0x9e3779b97f4a7c15ULL : 0xc2b2ae3d27d4eb4fULL);
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  return static_cast<std::byte>(x >> (8 * (i & 7)));
}

/// The initial numbers under which wrap mistakes show.
inline constexpr uint32_t kIss[6] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0U - 1460U};

}  // namespace vireo::fuzz
