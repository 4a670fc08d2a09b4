#include "tests/packetdrill/ip.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace vireo::packetdrill {
namespace {

constexpr uint8_t kTcp = 6, kIcmp4 = 1, kIcmp6 = 58;

uint16_t get16(const uint8_t* p) { return static_cast<uint16_t>(p[0] << 8 | p[1]); }
uint32_t get32(const uint8_t* p) { return uint32_t{get16(p)} << 16 | get16(p + 2); }
void put16(uint8_t* p, uint32_t v) {
  p[0] = static_cast<uint8_t>(v >> 8);
  p[1] = static_cast<uint8_t>(v);
}
void put32(uint8_t* p, uint32_t v) {
  put16(p, v >> 16);
  put16(p + 2, v);
}

uint32_t sum(std::span<const uint8_t> b, uint32_t s = 0) {
  for (size_t i = 0; i < b.size(); ++i) {
    s += i % 2 == 0 ? uint32_t{b[i]} << 8 : b[i];
    s = (s & 0xffff) + (s >> 16);
  }
  return s;
}
uint16_t folded(uint32_t s) { return static_cast<uint16_t>(~((s & 0xffff) + (s >> 16))); }

/// Pseudo header plus segment.
uint16_t tcp_checksum(const Place& from, const Place& to, std::span<const uint8_t> tcp) {
  const size_t n = from.v6 ? 16 : 4;
  uint32_t s = sum({from.address.data(), n});
  s = sum({to.address.data(), n}, s);
  s += kTcp + static_cast<uint32_t>(tcp.size());
  return folded(sum(tcp, s));
}

/// Where an IP packet's payload begins, and what it is.
struct Network {
  size_t at = 0;
  size_t end = 0;
  uint8_t protocol = 0;
  uint8_t ecn = 0;
  Place from, to;
};

std::optional<Network> parse_network(std::span<const uint8_t> b) {
  Network n;
  if (b.size() < 20) return {};
  if (b[0] >> 4 == 4) {
    n.at = (b[0] & 15U) * 4U;
    n.end = std::min<size_t>(get16(&b[2]), b.size());
    n.protocol = b[9];
    n.ecn = b[1] & 3;
    std::copy_n(&b[12], 4, n.from.address.begin());
    std::copy_n(&b[16], 4, n.to.address.begin());
  } else {
    if (b.size() < 40) return {};
    n.at = 40;
    n.end = std::min<size_t>(size_t{40} + get16(&b[4]), b.size());
    n.protocol = b[6];
    n.ecn = (b[1] >> 4) & 3;
    n.from.v6 = n.to.v6 = true;
    std::copy_n(&b[8], 16, n.from.address.begin());
    std::copy_n(&b[24], 16, n.to.address.begin());
  }
  return n;
}

script::EcnBits ecn_of(uint8_t bits) {
  constexpr script::EcnBits kAll[] = {script::EcnBits::kNotEct, script::EcnBits::kEct1,
                                      script::EcnBits::kEct0, script::EcnBits::kCe};
  return kAll[bits];
}
uint8_t bits_of(script::EcnBits e) {
  switch (e) {
    case script::EcnBits::kEct0:
      return 2;
    case script::EcnBits::kEct1:
      return 1;
    case script::EcnBits::kCe:
      return 3;
    default:
      return 0;
  }
}

std::optional<IcmpError> parse_icmp(const Network& n, std::span<const uint8_t> b) {
  if (n.end < n.at + 8 + 28) return {};
  const uint8_t type = b[n.at], code = b[n.at + 1];
  const auto quoted = parse_network(b.subspan(n.at + 8));
  if (!quoted || quoted->protocol != kTcp) return {};
  const size_t tcp = n.at + 8 + quoted->at;
  if (tcp + 8 > b.size()) return {};
  IcmpError e;
  e.seq = get32(&b[tcp + 4]);
  e.from = quoted->from;
  e.to = quoted->to;
  e.from.port = get16(&b[tcp]);
  e.to.port = get16(&b[tcp + 2]);
  if (n.protocol == kIcmp4) {
    if (type != 3) return {};
    constexpr int kErrors[] = {ENETUNREACH, EHOSTUNREACH, ENOPROTOOPT, ECONNREFUSED, EMSGSIZE};
    e.error = code < std::size(kErrors) ? kErrors[code] : EHOSTUNREACH;
    if (code == 4) e.mtu = get16(&b[n.at + 6]);
  } else if (type == 2) {
    e.error = EMSGSIZE;
    e.mtu = get32(&b[n.at + 4]);
  } else if (type == 1) {
    e.error = code == 4 ? ECONNREFUSED : EHOSTUNREACH;
  } else {
    return {};
  }
  return e;
}

}  // namespace

std::optional<Place> Place::of(const sockaddr* sa, socklen_t length) {
  Place p;
  if (sa->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in in;
    std::memcpy(&in, sa, sizeof in);
    std::memcpy(p.address.data(), &in.sin_addr, 4);
    p.port = ntohs(in.sin_port);
    return p;
  }
  if (sa->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in;
    std::memcpy(&in, sa, sizeof in);
    p.port = ntohs(in.sin6_port);
    p.v6 = !IN6_IS_ADDR_V4MAPPED(&in.sin6_addr);
    std::memcpy(p.address.data(), in.sin6_addr.s6_addr + (p.v6 ? 0 : 12), p.v6 ? 16 : 4);
    return p;
  }
  return {};
}

std::optional<Arrived> parse_packet(std::span<const uint8_t> b) {
  const auto n = parse_network(b);
  if (!n) return {};
  Arrived a;
  a.from = n->from;
  a.to = n->to;
  if (n->protocol == kIcmp4 || n->protocol == kIcmp6) {
    a.icmp = parse_icmp(*n, b);
    if (!a.icmp) return {};
    a.from = a.icmp->to;
    a.to = a.icmp->from;
    return a;
  }
  if (n->protocol != kTcp || n->end < n->at + 20) return {};
  const uint8_t* t = &b[n->at];
  const size_t header = (t[12] >> 4) * 4U;
  if (header < 20 || n->at + header > n->end) return {};
  a.from.port = get16(t);
  a.to.port = get16(t + 2);
  script::WireSegment& s = a.segment;
  s.seq = get32(t + 4);
  s.ack = get32(t + 8);
  s.flags = t[13];
  s.window = get16(t + 14);
  s.urgent = get16(t + 18);
  s.ecn = ecn_of(n->ecn);
  s.options.assign(t + 20, t + header);
  s.payload.assign(t + header, &b[0] + n->end);
  return a;
}

std::vector<uint8_t> build_packet(const Place& from, const Place& to,
                                  const script::WireSegment& s) {
  const size_t ip = from.v6 ? 40 : 20;
  const size_t header = 20 + s.options.size();
  const size_t tcp = header + s.payload.size();
  std::vector<uint8_t> b(ip + tcp);
  if (from.v6) {
    b[0] = 0x60;
    b[1] = static_cast<uint8_t>(bits_of(s.ecn) << 4);
    put16(&b[4], static_cast<uint32_t>(tcp));
    b[6] = kTcp;
    b[7] = 64;
    std::copy_n(from.address.begin(), 16, &b[8]);
    std::copy_n(to.address.begin(), 16, &b[24]);
  } else {
    b[0] = 0x45;
    b[1] = bits_of(s.ecn);
    put16(&b[2], static_cast<uint32_t>(ip + tcp));
    b[6] = 0x40;  // DF
    b[8] = 64;
    b[9] = kTcp;
    std::copy_n(from.address.begin(), 4, &b[12]);
    std::copy_n(to.address.begin(), 4, &b[16]);
    put16(&b[10], folded(sum({b.data(), 20})));
  }
  uint8_t* t = &b[ip];
  put16(t, from.port);
  put16(t + 2, to.port);
  put32(t + 4, s.seq);
  put32(t + 8, s.ack);
  t[12] = static_cast<uint8_t>(header / 4 << 4);
  t[13] = s.flags;
  put16(t + 14, s.window);
  put16(t + 18, s.urgent);
  std::copy(s.options.begin(), s.options.end(), t + 20);
  std::copy(s.payload.begin(), s.payload.end(), t + header);
  put16(t + 16, tcp_checksum(from, to, {t, tcp}));
  return b;
}

}  // namespace vireo::packetdrill
