// The headers that a flow expects next. A received plain frame over IPv4 (plain.h) is compared with
// them, 16 bytes at a time. Fields that vary are masked: length, identification, time to live and
// class of IP, DF, PSH, window, checksums and timestamps.
// Owner: the flow, or its scoreboard. Thread: holder of the engine's lock. Source: Van Jacobson's
// header prediction, for all headers.
#pragma once

#include <immintrin.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/checksum.h"
#include "stack/wire/plain.h"
#include "stack/wire/tcp.h"
#include "stack/wire/tcp_options.h"

namespace vireo::wire {

namespace detail {

inline constexpr unsigned kIpAt = sizeof(EthernetHeader);

using Lane = std::array<uint8_t, 16>;
/// Version and header length, fragment, protocol, source.
alignas(16) inline constexpr Lane kIpMask{0xff, 0,    0, 0, 0,    0,    0x3f, 0xff,
                                          0,    0xff, 0, 0, 0xff, 0xff, 0xff, 0xff};
/// Header length, flags except PSH, option kind.
alignas(16) inline constexpr Lane kTcpMask{0xff, 0xf7, 0,    0,    0, 0, 0, 0,
                                           0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};
/// Destination and ports.
alignas(16) inline constexpr Lane kUdpMask{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                           0,    0,    0,    0,    0,    0,    0,    0};

inline __m128i lane(const Lane& l) noexcept {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(l.data()));
}
/// Difference of a frame at any address and `kept`, which is aligned.
inline __m128i difference(const std::byte* frame, const std::byte* kept) noexcept {
  return _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(frame)),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(kept)));
}

/// Fields in host order.
inline uint16_t half(const std::byte* p) noexcept {
  return std::byteswap(checksum::detail::load<uint16_t>(p));
}
inline uint32_t word(const std::byte* p) noexcept {
  return std::byteswap(checksum::detail::load<uint32_t>(p));
}

inline bool is_ipv4(const std::byte* frame) noexcept {
  constexpr uint16_t kType = be16(static_cast<uint16_t>(EtherType::kIpv4)).raw();
  return checksum::detail::load<uint16_t>(frame + 12) == kType;
}

/// Writes the IP header and the ports of frames of `path`.
inline void write_path(std::byte* ip, const PlainPath<false>& path, IpProto proto) noexcept {
  ip[0] = std::byte{0x45};
  ip[9] = static_cast<std::byte>(proto);
  std::memcpy(ip + 12, path.addresses, sizeof path.addresses);
  std::memcpy(ip + 20, &path.ports, sizeof path.ports);
}

}  // namespace detail

// ---- fields of a matching frame that are not compared; IPv4 without options

/// IP payload bytes from IP's total length, whatever the frame's length.
inline unsigned expected_l4_bytes(const std::byte* frame) noexcept {
  return unsigned{detail::half(frame + 16)} - unsigned{sizeof(Ipv4Header)};
}
/// True if the IP header's checksum is right. (The sum is never zero.)
inline bool is_expected_ip_sum_good(const std::byte* frame) noexcept {
  const uint64_t sum = checksum::detail::load<uint32_t>(frame + 30);
  return checksum::detail::add_words<2, 14>(sum, frame) % 0xffff == 0;
}

/// A segment with ACK, perhaps PSH, timestamps, and the expected sequence numbers.
class ExpectedTcp {
 public:
  bool is_set() const noexcept { return bytes_[0] != std::byte{}; }
  void set(const PlainPath<false>& path) noexcept {
    bytes_ = {};
    detail::write_path(bytes_.data(), path, IpProto::kTcp);
    bytes_[32] = std::byte{0x80};
    bytes_[33] = static_cast<std::byte>(TcpFlags::kAck);
    const be32 kind(kTimestampsWord);
    std::memcpy(bytes_.data() + 40, &kind, sizeof kind);
  }
  /// segment_numbers().
  uint64_t numbers() const noexcept {
    return checksum::detail::load<uint64_t>(bytes_.data() + kNumbersAt);
  }
  void expect(uint64_t numbers) noexcept {
    std::memcpy(bytes_.data() + kNumbersAt, &numbers, sizeof numbers);
  }
  /// Requires is_set(), and 66 readable bytes in the frame's buffer.
  bool matches(const std::byte* frame) const noexcept {
    const std::byte* const ip = frame + detail::kIpAt;
    const auto miss = [&](unsigned at) { return detail::difference(ip + at, bytes_.data() + at); };
    const __m128i all =
        _mm_or_si128(_mm_or_si128(_mm_and_si128(miss(0), detail::lane(detail::kIpMask)), miss(16)),
                     _mm_and_si128(miss(32), detail::lane(detail::kTcpMask)));
    return detail::is_ipv4(frame) && _mm_testz_si128(all, all) != 0;
  }
  /// True if the segment's checksum is right; `payload_sum`: unfolded sum of its payload.
  static bool is_sum_good(const std::byte* frame, unsigned l4_bytes,
                          uint64_t payload_sum) noexcept {
    const uint64_t rest = uint64_t{checksum::word(static_cast<uint8_t>(IpProto::kTcp))} +
                          checksum::word(static_cast<uint16_t>(l4_bytes));
    // Addresses, then the header.
    const uint64_t sum = checksum::detail::add_words<5, 26>(rest, frame);
    return checksum::add(sum, payload_sum) % 0xffff == 0;
  }

 private:
  static constexpr unsigned kNumbersAt = 24;
  alignas(16) std::array<std::byte, 48> bytes_{};  ///< from the IP header to the option kind
};

/// A datagram. One that differs from the last only in its payload is recognized by one compare.
class ExpectedUdp {
 public:
  void set(const PlainPath<false>& path) noexcept {
    detail::write_path(path_.data(), path, IpProto::kUdp);
  }
  /// Its headers equal those of the last accepted datagram: it has bytes() of payload, if the frame
  /// is long enough. Requires 46 readable bytes in the frame's buffer.
  bool repeats(const std::byte* frame) const noexcept {
    const __m128i all = _mm_or_si128(detail::difference(frame + kLastAt, last_.data()),
                                     detail::difference(frame + kLastAt + 12, more_.data()));
    return _mm_testz_si128(all, all) != 0;
  }
  size_t bytes() const noexcept { return bytes_; }
  /// Checks a datagram as the first of such a row. @return false: its headers are wrong, or it is
  /// empty.
  bool accept(const std::byte* frame) noexcept {
    const std::byte* const ip = frame + detail::kIpAt;
    const auto miss = [&](unsigned at) { return detail::difference(ip + at, path_.data() + at); };
    if (path_[0] == std::byte{}) return false;
    const __m128i all = _mm_or_si128(_mm_and_si128(miss(0), detail::lane(detail::kIpMask)),
                                     _mm_and_si128(miss(16), detail::lane(detail::kUdpMask)));
    const unsigned l4_bytes = expected_l4_bytes(frame);
    if (!detail::is_ipv4(frame) || _mm_testz_si128(all, all) == 0 ||
        detail::half(frame + 38) != l4_bytes || l4_bytes <= kHeader ||
        !is_expected_ip_sum_good(frame))
      return false;
    std::memcpy(last_.data(), frame + kLastAt, last_.size());
    std::memcpy(more_.data(), frame + kLastAt + 12, more_.size());
    bytes_ = l4_bytes - kHeader;
    const uint32_t length = checksum::word(static_cast<uint16_t>(l4_bytes));
    const uint64_t addresses_and_ports = checksum::detail::load<uint32_t>(frame + 34);
    sum_ = checksum::add(checksum::detail::load<uint64_t>(frame + 26),
                         addresses_and_ports + length + length +
                             checksum::word(static_cast<uint8_t>(IpProto::kUdp)));
    return true;
  }
  /// As ExpectedTcp::is_sum_good(), for an accepted or repeated datagram; its checksum may be
  /// absent.
  bool is_sum_good(const std::byte* frame, uint64_t payload_sum) const noexcept {
    const auto field = checksum::detail::load<uint16_t>(frame + 40);
    return checksum::add(checksum::add(sum_, field), payload_sum) % 0xffff == 0 || field == 0;
  }

 private:
  static constexpr unsigned kHeader = 8;
  static constexpr unsigned kLastAt = 12;
  alignas(16) std::array<std::byte, 16> last_{};  ///< frame bytes from kLastAt; zero: none
  alignas(16) std::array<std::byte, 16> more_{};  ///< ... and from kLastAt + 12, to the UDP length
  uint64_t sum_ = 0;  ///< sum of the header fields that the checksum covers
  size_t bytes_ = 0;
  alignas(16) std::array<std::byte, 32> path_{};  ///< expected first bytes; zero: none expected
};

}  // namespace vireo::wire
