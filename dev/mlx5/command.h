// A firmware command or its reply: big-endian words that contain bit fields. A field is identified
// by its first bit, counted from the start of the command, as in the reference manual and in
// Linux's mlx5_ifc.h.
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
  /// The field must lie within one word.
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
