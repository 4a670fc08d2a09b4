// The two ends of a connection as bytes to hash: 12 for IPv4, 36 for IPv6, so that the length
// distinguishes the families. Owner: none. Thread: any.
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
    if (local.is_v4() && remote.is_v4())
      put<4>(local, local_port, remote, remote_port);
    else
      put<16>(local, local_port, remote, remote_port);
  }
  std::span<const uint8_t> span() const { return {bytes_.data(), size_}; }

 private:
  /// The last `kBytes` of each address.
  template <size_t kBytes>
  void put(const IpAddr& local, uint16_t local_port, const IpAddr& remote, uint16_t remote_port) {
    std::memcpy(&bytes_[0], local.bytes().data() + 16 - kBytes, kBytes);
    std::memcpy(&bytes_[kBytes], remote.bytes().data() + 16 - kBytes, kBytes);
    std::memcpy(&bytes_[2 * kBytes], &local_port, 2);
    std::memcpy(&bytes_[2 * kBytes + 2], &remote_port, 2);
    size_ = 2 * kBytes + 4;
  }

  std::array<uint8_t, 36> bytes_;
  size_t size_;
};

}  // namespace vireo
