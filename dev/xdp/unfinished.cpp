#include "dev/xdp/unfinished.h"

namespace vireo::xdp::detail {
namespace {

uint16_t word_at(const std::byte* p) { return std::byteswap(checksum::detail::load<uint16_t>(p)); }

}  // namespace

bool is_unfinished_else(const std::byte* frame, uint32_t bytes) noexcept {
  constexpr uint32_t kIp6Bytes = 40;
  constexpr uint32_t kTagBytes = 4;
  uint32_t ip_at = kEthernetBytes;
  for (int tags = 0; ip_at + kIp4Bytes <= bytes; ++tags) {
    const std::byte* const ip = frame + ip_at;
    switch (word_at(ip - 2)) {
      case 0x0800: {
        const uint32_t header = (static_cast<uint8_t>(ip[0]) & 15U) * 4;
        return header >= kIp4Bytes &&
               is_pseudo_sum(frame, bytes, ip_at + header, static_cast<uint8_t>(ip[9]),
                             static_cast<uint16_t>(word_at(ip + 2) - header),
                             checksum::detail::load<uint64_t>(ip + 12));
      }
      case 0x86dd:  // with extension headers it goes to the kernel
        return ip_at + kIp6Bytes <= bytes &&
               is_pseudo_sum(frame, bytes, ip_at + kIp6Bytes, static_cast<uint8_t>(ip[6]),
                             word_at(ip + 4), checksum::detail::add_words<4>(0, ip + 8));
      case 0x8100:
      case 0x88a8:
        if (tags == 2) return false;
        ip_at += kTagBytes;
        break;
      default:
        return false;
    }
  }
  return false;
}

}  // namespace vireo::xdp::detail
