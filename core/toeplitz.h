// Toeplitz hash: which queue a NIC with receive-side scaling gives a packet to. For choosing a
// source port whose answers come to our queue; not a table hash (linear, and the key is often well
// known). Owner: none. Thread: any. Off the hot path. Source: Microsoft RSS specification, as NICs
// implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/address.h"

namespace vireo {

/// Hash of `data` under a key of at least data.size() + 4 bytes.
inline uint32_t toeplitz(std::span<const uint8_t> key, std::span<const uint8_t> data) noexcept {
  uint32_t hash = 0;
  uint32_t window =
      uint32_t{key[0]} << 24 | uint32_t{key[1]} << 16 | uint32_t{key[2]} << 8 | key[3];
  for (size_t i = 0; i < data.size(); ++i) {
    for (int bit = 7; bit >= 0; --bit) {
      if ((data[i] >> bit & 1) != 0) hash ^= window;
      window = window << 1 | (key[i + 4] >> bit & 1U);
    }
  }
  return hash;
}

/// What the NIC hashes for a packet from `src` to `dst` as it arrives: addresses, then ports if
/// `with_ports`. The addresses must be of one family; `key` is the device's, 40 bytes.
inline uint32_t rss_hash(std::span<const uint8_t, 40> key, const Endpoint& src, const Endpoint& dst,
                         bool with_ports) noexcept {
  uint8_t in[36];
  const bool v4 = src.addr.is_v4();
  const size_t from = v4 ? 12 : 0;
  const size_t n = 16 - from;
  std::memcpy(in, src.addr.bytes().data() + from, n);
  std::memcpy(in + n, dst.addr.bytes().data() + from, n);
  size_t size = 2 * n;
  if (with_ports) {
    const be16 ports[2] = {src.port, dst.port};
    std::memcpy(in + size, ports, sizeof ports);
    size += sizeof ports;
  }
  return toeplitz(key, {in, size});
}

}  // namespace vireo
