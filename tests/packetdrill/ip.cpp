#include "tests/packetdrill/ip.h"

#include <algorithm>

namespace vireo::packetdrill {
namespace {

constexpr uint8_t kTcp = 6;
constexpr size_t kIp6Header = 40;

uint16_t get16(const uint8_t* p) { return static_cast<uint16_t>(p[0] << 8 | p[1]); }
uint32_t get32(const uint8_t* p) { return uint32_t{get16(p)} << 16 | get16(p + 2); }
void put16(uint8_t* p, size_t v) {
  p[0] = static_cast<uint8_t>(v >> 8);
  p[1] = static_cast<uint8_t>(v);
}
void put32(uint8_t* p, uint32_t v) {
  put16(p, v >> 16);
  put16(p + 2, v & 0xffff);
}

uint32_t sum(std::span<const uint8_t> b, uint32_t s = 0) {
  for (size_t i = 0; i < b.size(); ++i) {
    s += i % 2 == 0 ? uint32_t{b[i]} << 8 : b[i];
    s = (s & 0xffff) + (s >> 16);
  }
  return s;
}
uint16_t folded(uint32_t s) {
  while (s > 0xffff) s = (s & 0xffff) + (s >> 16);
  return static_cast<uint16_t>(~s);
}

std::span<const uint8_t> addresses(const Bytes& b, bool v6) {
  return v6 ? std::span(b).subspan(8, 32) : std::span(b).subspan(12, 8);
}

}  // namespace

std::optional<Segment> read_segment(std::span<const uint8_t> b) {
  if (b.size() < 20) return {};
  Segment s;
  s.v6 = b[0] >> 4 == 6;
  if (s.v6 && b.size() < kIp6Header) return {};
  s.tcp = s.v6 ? kIp6Header : (b[0] & 15U) * 4U;
  s.end = s.v6 ? kIp6Header + get16(&b[4]) : get16(&b[2]);
  if (b[s.v6 ? 6 : 9] != kTcp || s.end > b.size() || s.end < s.tcp + 20) return {};
  const uint8_t* const t = &b[s.tcp];
  s.payload = s.tcp + (t[12] >> 4) * 4U;
  if (s.payload > s.end) return {};
  s.from_port = get16(t);
  s.to_port = get16(t + 2);
  s.seq = get32(t + 4);
  s.flags = t[13];
  return s;
}

bool continues(const Bytes& first, const Segment& f, const Bytes& next, const Segment& n) {
  constexpr size_t kAck = 8, kOptions = 20;
  if (f.v6 != n.v6 || f.payload - f.tcp != n.payload - n.tcp) return false;
  if (n.bytes() == 0 || (n.flags & (kSyn | kRst)) != 0) return false;
  if (f.bytes() == 0 || (f.flags & (kFin | kSyn | kRst)) != 0) return false;
  const uint8_t *const a = &first[f.tcp], *const b = &next[n.tcp];
  return std::ranges::equal(addresses(first, f.v6), addresses(next, n.v6)) &&
         f.from_port == n.from_port && f.to_port == n.to_port &&
         n.seq == f.seq + static_cast<uint32_t>(f.bytes()) && get32(a + kAck) == get32(b + kAck) &&
         std::equal(a + kOptions, first.data() + f.payload, b + kOptions);
}

void join(Bytes& first, Segment& f, const Bytes& next, const Segment& n) {
  first.resize(f.end);
  first.insert(first.end(), next.begin() + static_cast<long>(n.payload),
               next.begin() + static_cast<long>(n.end));
  f.end = first.size();
  f.flags |= n.flags;
  first[f.tcp + 13] = f.flags;
}

std::vector<Bytes> cut(std::span<const uint8_t> packet, const Segment& s, size_t mtu) {
  std::vector<Bytes> all;
  const size_t most = mtu - s.payload;
  for (size_t at = 0; at == 0 || at < s.bytes(); at += most) {
    const size_t n = std::min(most, s.bytes() - at);
    Bytes b(packet.begin(), packet.begin() + static_cast<long>(s.payload));
    const auto data = packet.subspan(s.payload + at, n);
    b.insert(b.end(), data.begin(), data.end());
    put32(&b[s.tcp + 4], s.seq + static_cast<uint32_t>(at));
    if (at + n < s.bytes()) b[s.tcp + 13] &= static_cast<uint8_t>(~(kFin | kPsh));
    Segment piece = s;
    piece.end = b.size();
    finish(b, piece);
    all.push_back(std::move(b));
  }
  return all;
}

void finish(Bytes& b, const Segment& s) {
  if (s.v6) {
    put16(&b[4], s.end - kIp6Header);
  } else {
    put16(&b[2], s.end);
    put16(&b[10], 0);
    put16(&b[10], folded(sum(std::span(b).first(s.tcp))));
  }
  const size_t bytes = s.end - s.tcp;
  put16(&b[s.tcp + 16], 0);
  const uint32_t pseudo = sum(addresses(b, s.v6)) + kTcp + static_cast<uint32_t>(bytes);
  put16(&b[s.tcp + 16], folded(sum(std::span(b).subspan(s.tcp, bytes), pseudo)));
}

}  // namespace vireo::packetdrill
