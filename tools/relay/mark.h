// Lets a test program lose one chosen segment: the relay recognises a byte pattern in the stream.
// With `marked=1` a TCP segment that contains a mark is lost the first `times` times it passes,
// retransmissions included, in either direction.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>

namespace relay {

struct Mark {
  static constexpr std::array<uint8_t, 8> kMagic{0x9d, 'l', 'o', 's', 'e', 0xb1, 'm', 'e'};

  std::array<uint8_t, 8> magic = kMagic;
  uint32_t times = 1;
  uint32_t number = 0;  ///< unique for each mark
};
static_assert(sizeof(Mark) == 16);

inline std::optional<Mark> find_mark(std::span<const uint8_t> bytes) {
  const void* at = memmem(bytes.data(), bytes.size(), Mark::kMagic.data(), Mark::kMagic.size());
  if (at == nullptr) return std::nullopt;
  const auto offset = static_cast<size_t>(static_cast<const uint8_t*>(at) - bytes.data());
  if (offset + sizeof(Mark) > bytes.size()) return std::nullopt;
  Mark mark;
  std::memcpy(&mark, at, sizeof mark);
  return mark;
}

/// Counts how often each mark was seen. Owner: the relay, for both directions.
class Marks {
 public:
  bool loses(std::span<const uint8_t> bytes) {
    const std::optional<Mark> mark = find_mark(bytes);
    return mark && seen_[mark->number]++ < mark->times;
  }

 private:
  std::map<uint32_t, uint32_t> seen_;
};

}  // namespace relay
