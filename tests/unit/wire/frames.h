// Frames made byte by byte, by other code than the library's: what the tests compare with and feed
// in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/address.h"

namespace vireo::testing_frames {

using Bytes = std::vector<uint8_t>;

inline void put(Bytes& b, std::initializer_list<int> v) {
  for (int x : v) b.push_back(static_cast<uint8_t>(x));
}
inline void put16(Bytes& b, uint32_t v) {
  b.push_back(static_cast<uint8_t>(v >> 8));
  b.push_back(static_cast<uint8_t>(v));
}
inline void put32(Bytes& b, uint32_t v) {
  put16(b, v >> 16);
  put16(b, v & 0xffff);
}
inline void set16(Bytes& b, size_t at, uint32_t v) {
  b[at] = static_cast<uint8_t>(v >> 8);
  b[at + 1] = static_cast<uint8_t>(v);
}

/// RFC 1071, word by word.
inline uint16_t naive_checksum(const Bytes& b, size_t from = 0) {
  uint32_t s = 0;
  for (size_t i = from; i < b.size(); ++i) {
    s += static_cast<uint32_t>(b[i]) << ((i - from) % 2 == 0 ? 8 : 0);
    s = (s & 0xffff) + (s >> 16);
  }
  return static_cast<uint16_t>(~s);
}

struct Spec {
  Bytes dst_mac = {2, 0, 0, 0, 0, 1};
  Bytes src_mac = {2, 0, 0, 0, 0, 2};
  std::vector<uint16_t> tags;  ///< TCIs, outer first
  IpAddr src = *IpAddr::parse("10.0.0.2");
  IpAddr dst = *IpAddr::parse("10.0.0.1");
  uint8_t proto = 6;
  uint8_t ttl = 64;
  uint8_t tos = 0;
  uint16_t id = 0;
  uint16_t fragment = 0x4000;
  Bytes ip_options;  ///< IPv4, a multiple of 4
  Bytes extensions;  ///< IPv6, complete headers; `first_extension` names the first
  uint8_t first_extension = 0;
  uint32_t flow_label = 0;
  uint16_t src_port = 1000;
  uint16_t dst_port = 2000;
  uint32_t seq = 0;
  uint32_t ack = 0;
  uint8_t flags = 0x10;
  uint16_t window = 0;
  uint16_t urgent = 0;
  Bytes options;
  Bytes icmp;  ///< ICMP header and body, checksum zero
  Bytes payload;
  size_t padding = 0;  ///< bytes after the packet
  std::optional<uint16_t> l4_checksum;
};

inline Bytes address_bytes(const IpAddr& a) {
  const auto& b = a.bytes();
  return Bytes(b.begin() + (a.is_v4() ? 12 : 0), b.end());
}

inline Bytes append(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The transport header with its checksum, and the payload.
inline Bytes make_l4(const Spec& s) {
  Bytes l4;
  size_t at = 0;
  if (s.proto == 6) {
    put16(l4, s.src_port);
    put16(l4, s.dst_port);
    put32(l4, s.seq);
    put32(l4, s.ack);
    put(l4, {static_cast<int>((5 + s.options.size() / 4) << 4), s.flags});
    put16(l4, s.window);
    at = l4.size();
    put16(l4, 0);
    put16(l4, s.urgent);
    l4 = append(l4, s.options);
  } else if (s.proto == 17) {
    put16(l4, s.src_port);
    put16(l4, s.dst_port);
    put16(l4, static_cast<uint32_t>(8 + s.payload.size()));
    at = l4.size();
    put16(l4, 0);
  } else {
    l4 = s.icmp;
    at = 2;
  }
  l4 = append(l4, s.payload);
  if (l4.size() < at + 2) return l4;
  Bytes covered;
  if (s.proto != 1) {  // ICMP of IPv4 has no pseudo-header
    covered = append(address_bytes(s.src), address_bytes(s.dst));
    if (!s.src.is_v4()) put16(covered, 0);
    if (s.src.is_v4()) {
      put(covered, {0, s.proto});
      put16(covered, static_cast<uint32_t>(l4.size()));
    } else {
      put16(covered, static_cast<uint32_t>(l4.size()));
      put(covered, {0, 0, 0, s.proto});
    }
  }
  uint16_t sum = naive_checksum(append(covered, l4));
  if (s.proto == 17 && sum == 0) sum = 0xffff;
  set16(l4, at, s.l4_checksum.value_or(sum));
  return l4;
}

inline Bytes make_frame(const Spec& s) {
  Bytes f = append(s.dst_mac, s.src_mac);
  for (uint16_t tci : s.tags) {
    put16(f, &tci == s.tags.data() && s.tags.size() > 1 ? 0x88a8 : 0x8100);
    put16(f, tci);
  }
  const Bytes l4 = make_l4(s);
  if (s.src.is_v4()) {
    put16(f, 0x0800);
    Bytes ip;
    put(ip, {static_cast<int>(0x40 | (5 + s.ip_options.size() / 4)), s.tos});
    put16(ip, static_cast<uint32_t>(20 + s.ip_options.size() + l4.size()));
    put16(ip, s.id);
    put16(ip, s.fragment);
    put(ip, {s.ttl, s.proto});
    put16(ip, 0);
    ip = append(append(append(ip, address_bytes(s.src)), address_bytes(s.dst)), s.ip_options);
    set16(ip, 10, naive_checksum(ip));
    f = append(f, ip);
  } else {
    put16(f, 0x86dd);
    put32(f, 0x60000000U | uint32_t{s.tos} << 20 | s.flow_label);
    put16(f, static_cast<uint32_t>(s.extensions.size() + l4.size()));
    put(f, {s.extensions.empty() ? s.proto : s.first_extension, s.ttl});
    f = append(append(append(f, address_bytes(s.src)), address_bytes(s.dst)), s.extensions);
  }
  f = append(f, l4);
  f.resize(f.size() + s.padding, 0xee);
  return f;
}

inline Spec v6_spec() {
  Spec s;
  s.src = *IpAddr::parse("2001:db8::2");
  s.dst = *IpAddr::parse("2001:db8::1");
  return s;
}

}  // namespace vireo::testing_frames
