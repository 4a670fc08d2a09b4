#include "tests/apparatus/mem/cut.h"

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/byteorder.h"
#include "core/checksum.h"

namespace vireo {
namespace {

using Frame = std::vector<std::byte>;

constexpr auto kFin = std::byte{0x01}, kPsh = std::byte{0x08}, kCwr = std::byte{0x80};
constexpr uint16_t kVlan = 0x8100, kServiceVlan = 0x88a8, kIpv4 = 0x0800, kIpv6 = 0x86dd;
constexpr size_t kIpv6Bytes = 40;

template <class T>
auto load(std::span<const std::byte> f, size_t at) {
  T v;
  VIREO_ASSERT(at + sizeof v <= f.size());
  std::memcpy(&v, f.data() + at, sizeof v);
  return v;
}
template <class T>
void store(Frame& f, size_t at, T v) {
  std::memcpy(f.data() + at, &v, sizeof v);
}

/// Where the headers lie.
struct Layout {
  explicit Layout(std::span<const std::byte> head) {
    uint16_t type = load<be16>(head, ip - 2);
    for (; type == kVlan || type == kServiceVlan; type = load<be16>(head, ip - 2)) ip += 4;
    is_v4 = type == kIpv4;
    VIREO_ASSERT(is_v4 || type == kIpv6);
    tcp = ip + (is_v4 ? (std::to_integer<size_t>(head[ip]) & 15) * 4 : kIpv6Bytes);
    VIREO_ASSERT(std::to_integer<int>(head[ip + (is_v4 ? 9 : 6)]) == 6);
    VIREO_ASSERT(tcp + (std::to_integer<size_t>(head[tcp + 12]) >> 4) * 4 == head.size());
  }
  size_t ip = 14;
  size_t tcp;
  bool is_v4;
};

void fill_sums(Frame& f, const Layout& at) {
  const auto l4_bytes = static_cast<uint32_t>(f.size() - at.tcp);
  checksum::Sum pseudo;
  if (at.is_v4) {
    store(f, at.ip + 10, be16(0));
    store(f, at.ip + 10, checksum::finish(checksum::sum(f.data() + at.ip, at.tcp - at.ip)));
    pseudo = checksum::pseudo_v4(load<be32>(f, at.ip + 12), load<be32>(f, at.ip + 16),
                                 IpProto::kTcp, static_cast<uint16_t>(l4_bytes));
  } else {
    pseudo =
        checksum::pseudo_v6(f.data() + at.ip + 8, f.data() + at.ip + 24, IpProto::kTcp, l4_bytes);
  }
  store(f, at.tcp + 16, be16(0));
  const uint64_t sum = uint64_t{pseudo} + checksum::sum(f.data() + at.tcp, l4_bytes);
  store(f, at.tcp + 16, checksum::finish(sum));
}

}  // namespace

std::vector<Frame> cut(std::span<const std::byte> head, std::span<const std::byte> payload,
                       uint16_t mss) {
  const Layout at(head);
  const uint32_t seq = load<be32>(head, at.tcp + 4);
  std::vector<Frame> frames;
  for (size_t done = 0; done < payload.size(); done += mss) {
    const auto part = payload.subspan(done, std::min<size_t>(mss, payload.size() - done));
    Frame& f = frames.emplace_back(head.begin(), head.end());
    f.insert(f.end(), part.begin(), part.end());
    if (at.is_v4) {
      const uint16_t id = load<be16>(head, at.ip + 4);
      store(f, at.ip + 2, be16(static_cast<uint16_t>(f.size() - at.ip)));
      store(f, at.ip + 4, be16(static_cast<uint16_t>(id + frames.size() - 1)));
    } else {
      store(f, at.ip + 4, be16(static_cast<uint16_t>(f.size() - at.tcp)));
    }
    store(f, at.tcp + 4, be32(seq + static_cast<uint32_t>(done)));
    if (done > 0) f[at.tcp + 13] &= ~kCwr;
    if (done + part.size() < payload.size()) f[at.tcp + 13] &= ~(kFin | kPsh);
    fill_sums(f, at);
  }
  return frames;
}

}  // namespace vireo
