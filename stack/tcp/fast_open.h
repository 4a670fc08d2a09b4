// TCP Fast Open, the server's cookies: who shows one has had an answer at its address before, so
// that data on its SYN may be taken before the handshake is over.
//
// A cookie is a keyed hash of both addresses and the half day, good in that and the next; whoever
// shows an older one gets a new one and an ordinary handshake. Owner: none (pure functions).
// Thread: any. Source: RFC 7413 §4.1.2, §5.1; of 8 bytes as Linux's (net/ipv4/tcp_fastopen.c).
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "core/address.h"
#include "stack/tcp/isn.h"

namespace vireo::tcp {

inline constexpr Duration kFastOpenEpoch = Duration::s(12 * 3600);
using FastOpenCookie = std::array<uint8_t, 8>;

inline FastOpenCookie fast_open_cookie(const IsnSecret& key, const IpAddr& server,
                                       const IpAddr& client, uint64_t epoch) {
  std::array<uint8_t, 16 + 16 + 8 + 1> in{};  // no other hash under this key is as long
  std::memcpy(in.data(), server.bytes().data(), 16);
  std::memcpy(in.data() + 16, client.bytes().data(), 16);
  std::memcpy(in.data() + 32, &epoch, 8);
  const uint64_t h = siphash(key, in);
  FastOpenCookie c;
  std::memcpy(c.data(), &h, c.size());
  return c;
}

inline uint64_t fast_open_epoch(Instant now) {
  return static_cast<uint64_t>(now.ns() / kFastOpenEpoch.ns());
}

/// The one to give out now.
inline FastOpenCookie fast_open_cookie(const IsnSecret& key, const IpAddr& server,
                                       const IpAddr& client, Instant now) {
  return fast_open_cookie(key, server, client, fast_open_epoch(now));
}

/// We gave `given` to that client, not too long ago.
inline bool is_fast_open_cookie(const IsnSecret& key, const IpAddr& server, const IpAddr& client,
                                std::span<const uint8_t> given, Instant now) {
  for (uint64_t age = 0; age < 2; ++age)
    if (std::ranges::equal(given,
                           fast_open_cookie(key, server, client, fast_open_epoch(now) - age)))
      return true;
  return false;
}

}  // namespace vireo::tcp
