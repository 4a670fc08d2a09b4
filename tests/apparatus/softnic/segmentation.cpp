#include "tests/apparatus/softnic/segmentation.h"

#include <netinet/in.h>

#include <cstring>

#include "core/byteorder.h"
#include "tests/apparatus/softnic/frame.h"

namespace vireo::softnic {
namespace {

constexpr size_t kTcpSeqAt = 4, kTcpFlagsAt = 13, kIpLengthAt = 2, kIpIdAt = 4, kIp6LengthAt = 4;
constexpr auto kFin = std::byte(0x01), kPsh = std::byte(0x08), kCwr = std::byte(0x80);

template <class T>
void add_to(std::byte* field, T n) {
  BigEndian<T> v;
  std::memcpy(&v, field, sizeof v);
  v = static_cast<T>(v + n);
  std::memcpy(field, &v, sizeof v);
}

/// Headers of a frame that is a header alone: parse() would find its IP length wrong.
Headers headers_of(std::span<const std::byte> header) {
  std::byte whole[256] = {};
  if (header.size() > sizeof whole) return {};
  std::memcpy(whole, header.data(), header.size());
  Headers h = parse(std::span(whole).first(header.size()));
  if (h.ether_type != 0x0800 && h.ether_type != 0x86dd) return {};
  const bool is_v4 = h.ether_type == 0x0800;
  if (header.size() < h.l3_at + (is_v4 ? 20U : 40U)) return {};
  const be16 length(static_cast<uint16_t>(header.size() - h.l3_at - (is_v4 ? 0 : 40)));
  std::memcpy(whole + h.l3_at + (is_v4 ? kIpLengthAt : kIp6LengthAt), &length, sizeof length);
  return parse(std::span(whole).first(header.size()));
}

}  // namespace

bool can_segment(std::span<const std::byte> header) noexcept {
  const Headers h = headers_of(header);
  if (h.proto != IPPROTO_TCP || h.l4_bytes < 20) return false;
  const size_t tcp = (std::to_integer<size_t>(header[h.l4_at + 12]) >> 4) * 4;
  return h.l4_at + tcp == header.size();
}

size_t write_segment(std::span<std::byte> to, std::span<const std::byte> header,
                     std::span<const std::byte> part, uint32_t at, uint32_t number,
                     bool is_last) noexcept {
  const size_t bytes = header.size() + part.size();
  std::memcpy(to.data(), header.data(), header.size());
  std::memcpy(to.data() + header.size(), part.data(), part.size());
  const Headers h = headers_of(header);
  std::byte* ip = to.data() + h.l3_at;
  std::byte* tcp = to.data() + h.l4_at;
  const be16 length(static_cast<uint16_t>(bytes - h.l3_at - (h.ip == Ip::k4 ? 0 : 40)));
  std::memcpy(ip + (h.ip == Ip::k4 ? kIpLengthAt : kIp6LengthAt), &length, sizeof length);
  if (h.ip == Ip::k4) add_to<uint16_t>(ip + kIpIdAt, static_cast<uint16_t>(number));
  add_to<uint32_t>(tcp + kTcpSeqAt, at);
  if (!is_last) tcp[kTcpFlagsAt] &= ~(kFin | kPsh);
  if (number > 0) tcp[kTcpFlagsAt] &= ~kCwr;
  fill_checksums(to.first(bytes));
  return bytes;
}

}  // namespace vireo::softnic
