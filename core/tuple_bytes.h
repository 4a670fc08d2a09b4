// The two ends of a connection as they are hashed: 12 bytes of IPv4, 36 of IPv6, so that the length
// tells them apart. Owner: none. Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/address.h"

namespace vireo {

class TupleBytes {
 public:
  TupleBytes(const IpAddr& local, uint16_t local_port, const IpAddr& remote, uint16_t remote_port) {
    const size_t n = local.is_v4() && remote.is_v4() ? 4 : 16;
    put(local.bytes().data() + 16 - n, n);
    put(remote.bytes().data() + 16 - n, n);
    put(&local_port, 2);
    put(&remote_port, 2);
  }
  std::span<const uint8_t> span() const { return {bytes_.data(), size_}; }

 private:
  void put(const void* from, size_t n) {
    std::memcpy(bytes_.data() + size_, from, n);
    size_ += n;
  }

  std::array<uint8_t, 36> bytes_;
  size_t size_ = 0;
};

}  // namespace vireo
