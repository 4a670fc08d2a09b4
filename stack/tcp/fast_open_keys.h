// TCP Fast Open, the server's side: makes and checks cookies. A valid cookie proves that the client
// received an answer at its address before, so data on its SYN may be accepted before the handshake
// is complete. The client's side: fast_open_client.cpp.
//
// Cookies are identical to Linux's (since 5.3): SipHash-2-4 of the client's and the server's
// address. Servers behind one address with the same key, Vireo's and kernels, accept each other's.
// A cookie is valid as long as its key. To expire cookies, change the key; the old one stays as the
// backup for a while (RFC 7413 §4.1.2).
// Owner: none (pure functions). Thread: any. Source: RFC 7413 §4.1.2, §5.1;
// net/ipv4/tcp_fastopen.c.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "core/address.h"
#include "stack/tcp/isn.h"

namespace vireo::tcp {

using FastOpenCookie = std::array<uint8_t, 8>;

inline FastOpenCookie fast_open_cookie(const IsnSecret& key, const IpAddr& server,
                                       const IpAddr& client) {
  const size_t skip = client.is_v4() ? 12 : 0;
  const size_t n = 16 - skip;
  std::array<uint8_t, 2 * 16> in;
  std::memcpy(in.data(), client.bytes().data() + skip, n);
  std::memcpy(in.data() + n, server.bytes().data() + skip, n);
  return std::bit_cast<FastOpenCookie>(siphash(key, std::span(in).first(2 * n)));
}

/// The keys of one listener: the first makes cookies, all are accepted.
struct FastOpenKeys {
  static constexpr size_t kBytes = 16;  ///< of one key

  std::array<IsnSecret, 2> key{};
  uint8_t count = 0;

  /// From the value of TCP_FASTOPEN_KEY: one key, or that and the backup. None for any other size.
  static FastOpenKeys from(std::span<const std::byte> bytes) {
    FastOpenKeys k;
    if (bytes.size() != kBytes && bytes.size() != 2 * kBytes) return k;
    static_assert(sizeof k.key == 2 * kBytes);
    std::memcpy(k.key.data(), bytes.data(), bytes.size());
    k.count = static_cast<uint8_t>(bytes.size() / kBytes);
    return k;
  }
  FastOpenCookie cookie(const IpAddr& server, const IpAddr& client) const {
    return fast_open_cookie(key[0], server, client);
  }
  /// Index of the key that made `given` for that client; nullopt: none.
  std::optional<unsigned> maker_of(std::span<const uint8_t> given, const IpAddr& server,
                                   const IpAddr& client) const {
    for (unsigned i = 0; i < count; ++i)
      if (std::ranges::equal(given, fast_open_cookie(key[i], server, client))) return i;
    return std::nullopt;
  }
};

}  // namespace vireo::tcp
