// Frames of unusual shape, made from plain ones: VLAN tags, IP options, fragments, extension
// headers, ICMP errors. Owner: none (values). Thread: any.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "../frames.h"

namespace vireo::test {

inline constexpr size_t kEthernet = 14;

inline void put(Bytes& f, size_t at, std::initializer_list<unsigned> values) {
  for (const unsigned v : values) f[at++] = static_cast<std::byte>(v);
}

inline Bytes with_inserted(Bytes f, size_t at, std::initializer_list<unsigned> values) {
  f.insert(f.begin() + static_cast<ptrdiff_t>(at), values.size(), std::byte{});
  put(f, at, values);
  return f;
}

/// Puts a tag of Ethernet type `type` (0x8100, 0x88a8) outside of what is there.
inline Bytes with_tag(const Bytes& f, unsigned type, unsigned vid) {
  return with_inserted(f, 12, {type >> 8, type & 0xff, vid >> 8, vid & 0xff});
}

/// RFC 791: 4 x `words` bytes of no-operation options.
inline Bytes with_ip_options(Bytes f, unsigned words) {
  for (unsigned i = 0; i < words; ++i) f = with_inserted(f, kEthernet + 20, {1, 1, 1, 1});
  const unsigned length = static_cast<unsigned>(f.size() - kEthernet);
  put(f, kEthernet, {0x45U + words});
  put(f, kEthernet + 2, {length >> 8, length & 0xff});
  return f;
}

/// RFC 791 §3.1: flags and offset, e.g. 0x2000 the first fragment, 0x0010 a later one.
inline Bytes as_fragment4(Bytes f, unsigned flags_and_offset) {
  put(f, kEthernet + 6, {flags_and_offset >> 8, flags_and_offset & 0xff});
  return f;
}

/// RFC 8200: an 8-byte extension header (0 hop-by-hop, 44 fragment, 60 destination options) before
/// the transport.
inline Bytes with_extension6(const Bytes& f, unsigned type) {
  const auto next = std::to_integer<unsigned>(f[kEthernet + 6]);
  Bytes g = with_inserted(f, kEthernet + 40,
                          {next, 0, type == 44 ? 0U : 1U, type == 44 ? 1U : 4U, 0, 0, 0, 0});
  put(g, kEthernet + 6, {type});
  const unsigned length = static_cast<unsigned>(g.size() - kEthernet - 40);
  put(g, kEthernet + 4, {length >> 8, length & 0xff});
  return g;
}

/// An ICMP or ICMPv6 message of `type` from a router at `router`, quoting `quoted` (a whole frame
/// that `to` sent) up to `quoted_bytes` of its IP packet.
inline Bytes icmp_error(const IpAddr& router, const IpAddr& to, const Mac& to_mac, unsigned type,
                        unsigned code, const Bytes& quoted, size_t quoted_bytes) {
  FrameSpec s;
  s.from = {router, 1, 0};
  s.to = {to, 1, 0};
  s.to_mac = to_mac;
  const size_t ip = to.is_v4() ? 20 : 40;
  Bytes f = build_frame(s, {});
  f.resize(kEthernet + ip + 8);
  f.insert(
      f.end(), quoted.begin() + kEthernet,
      quoted.begin() + static_cast<ptrdiff_t>(std::min(quoted.size(), kEthernet + quoted_bytes)));
  put(f, kEthernet + ip, {type, code, 0, 0, 0, 0, 0, 0});
  const unsigned total = static_cast<unsigned>(f.size() - kEthernet);
  if (to.is_v4()) {
    put(f, kEthernet + 2, {total >> 8, total & 0xff});
    put(f, kEthernet + 9, {1});
  } else {
    put(f, kEthernet + 4, {(total - 40) >> 8, (total - 40) & 0xff});
    put(f, kEthernet + 6, {58});
  }
  return f;
}

}  // namespace vireo::test
