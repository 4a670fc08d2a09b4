#include "frames.h"

#include <cstring>

namespace vireo::test {
namespace {

constexpr size_t kEthernet = 14;

void put8(Bytes& f, unsigned v) { f.push_back(static_cast<std::byte>(v)); }
void put16(Bytes& f, unsigned v) {
  put8(f, v >> 8 & 255);
  put8(f, v & 255);
}
void put32(Bytes& f, uint32_t v) {
  put16(f, v >> 16);
  put16(f, v & 0xffff);
}
void put(Bytes& f, std::span<const std::byte> b) { f.insert(f.end(), b.begin(), b.end()); }
void set16(Bytes& f, size_t at, unsigned v) {
  f[at] = static_cast<std::byte>(v >> 8);
  f[at + 1] = static_cast<std::byte>(v & 255);
}
unsigned get16(std::span<const std::byte> f, size_t at) {
  return std::to_integer<unsigned>(f[at]) << 8 | std::to_integer<unsigned>(f[at + 1]);
}

std::span<const std::byte> address(const IpAddr& a) {
  const auto all = std::as_bytes(std::span(a.bytes()));
  return a.is_v4() ? all.subspan(12) : all;
}

uint16_t folded(uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

size_t l4_bytes(const FrameSpec& s) { return s.proto == IpProto::kTcp ? 20 : 8; }

void put_ip(Bytes& f, const FrameSpec& s, size_t l4_length) {
  if (s.from.addr.is_v4()) {
    const size_t at = f.size();
    put16(f, 0x4500U | s.tos);
    put16(f, static_cast<unsigned>(20 + l4_length));
    put32(f, uint32_t{s.ip_id} << 16 | 0x4000);  // do not fragment
    put16(f, static_cast<unsigned>(s.ttl << 8 | static_cast<int>(s.proto)));
    put16(f, 0);
    put(f, address(s.from.addr));
    put(f, address(s.to.addr));
    set16(f, at + 10, static_cast<uint16_t>(~folded(ones_sum(std::span(f).subspan(at, 20)))));
    return;
  }
  put32(f, 0x60000000U | static_cast<uint32_t>(s.tos) << 20);
  put16(f, static_cast<unsigned>(l4_length));
  put16(f, static_cast<unsigned>(static_cast<int>(s.proto) << 8 | s.ttl));
  put(f, address(s.from.addr));
  put(f, address(s.to.addr));
}

void put_l4(Bytes& f, const FrameSpec& s, size_t payload) {
  put16(f, s.from.port);
  put16(f, s.to.port);
  if (s.proto == IpProto::kTcp) {
    put32(f, s.seq);
    put32(f, s.ack);
    put16(f, 0x5000U | s.flags);
    put16(f, s.window);
    put32(f, 0);
  } else {
    put16(f, static_cast<unsigned>(8 + payload));
    put16(f, 0);
  }
}

uint32_t pseudo_sum(std::span<const std::byte> addresses, unsigned proto, size_t length) {
  return ones_sum(addresses, static_cast<uint32_t>(length) + proto);
}

}  // namespace

uint32_t ones_sum(std::span<const std::byte> b, uint32_t sum) {
  for (size_t i = 0; i + 1 < b.size(); i += 2) sum += get16(b, i);
  if (b.size() % 2 != 0) sum += std::to_integer<uint32_t>(b.back()) << 8;
  return sum;
}

size_t header_bytes(const FrameSpec& s) {
  return kEthernet + (s.vlan ? 4 : 0) + (s.from.addr.is_v4() ? 20 : 40) + l4_bytes(s);
}

Bytes build_frame(const FrameSpec& s, std::span<const std::byte> payload) {
  Bytes f;
  f.reserve(header_bytes(s) + payload.size());
  put(f, std::as_bytes(std::span(s.to_mac)));
  put(f, std::as_bytes(std::span(s.from_mac)));
  if (s.vlan) {
    put16(f, 0x8100);
    put16(f, *s.vlan);
  }
  put16(f, s.from.addr.is_v4() ? 0x0800 : 0x86dd);
  const size_t l4_length = l4_bytes(s) + payload.size();
  put_ip(f, s, l4_length);
  const size_t l4 = f.size();
  put_l4(f, s, payload.size());
  put(f, payload);
  const size_t addresses = s.from.addr.is_v4() ? 8 : 32;
  const uint32_t pseudo = pseudo_sum(std::span(f).subspan(l4 - addresses, addresses),
                                     static_cast<unsigned>(s.proto), l4_length);
  uint16_t sum = static_cast<uint16_t>(~folded(ones_sum(std::span(f).subspan(l4), pseudo)));
  if (s.proto == IpProto::kUdp && sum == 0) sum = 0xffff;  // 0 means none (RFC 768)
  set16(f, l4 + (s.proto == IpProto::kTcp ? 16 : 6), sum);
  return f;
}

Bytes numbered_payload(uint32_t number, size_t size) {
  Bytes p(size);
  for (size_t i = 0; i < size; ++i) p[i] = static_cast<std::byte>(number * 31 + i * 7 + 1);
  if (size > 0) std::memcpy(p.data(), &number, std::min(size, sizeof number));
  return p;
}

uint32_t number_of(std::span<const std::byte> frame, size_t header) {
  uint32_t n = UINT32_MAX;
  if (frame.size() >= header + sizeof n) std::memcpy(&n, frame.data() + header, sizeof n);
  return n;
}

bool checksums_hold(std::span<const std::byte> f) {
  size_t ip = kEthernet;
  while (get16(f, ip - 2) == 0x8100) ip += 4;
  const bool v4 = get16(f, ip - 2) == 0x0800;
  const size_t l4 = ip + (v4 ? 20 : 40);
  const unsigned proto = std::to_integer<unsigned>(f[ip + (v4 ? 9 : 6)]);
  const size_t addresses = v4 ? 8 : 32;
  if (v4 && folded(ones_sum(f.subspan(ip, 20))) != 0xffff) return false;
  const uint32_t pseudo = pseudo_sum(f.subspan(l4 - addresses, addresses), proto, f.size() - l4);
  return folded(ones_sum(f.subspan(l4), pseudo)) == 0xffff;
}

}  // namespace vireo::test
