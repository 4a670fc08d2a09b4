// A command to the firmware, or its answer: big-endian words, of which a field is a part. Fields
// are named by the bit at which they begin, counted from the command's beginning on, as the
// reference manual and Linux's mlx5_ifc.h count them.
// Owner: none (values). Thread: any.
#pragma once

#include <endian.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace vireo::mlx5 {

template <size_t kBytes>
class Command {
 public:
  /// `bits` of one word.
  void set(size_t at, unsigned bits, uint32_t value) {
    const unsigned shift = 32 - static_cast<unsigned>(at % 32) - bits;
    const uint32_t mask = (bits == 32 ? UINT32_MAX : (1U << bits) - 1) << shift;
    uint32_t& word = words_[at / 32];
    word = htobe32((be32toh(word) & ~mask) | (value << shift & mask));
  }
  uint32_t get(size_t at, unsigned bits) const {
    const unsigned shift = 32 - static_cast<unsigned>(at % 32) - bits;
    return be32toh(words_[at / 32]) >> shift & (bits == 32 ? UINT32_MAX : (1U << bits) - 1);
  }
  void* data() { return words_.data(); }
  const void* data() const { return words_.data(); }
  static constexpr size_t size() { return kBytes; }
  bool operator==(const Command&) const = default;

 private:
  std::array<uint32_t, kBytes / 4> words_{};
};

}  // namespace vireo::mlx5
