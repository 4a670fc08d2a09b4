// The frame that a flow expects, as far as it is known before it comes. A received plain frame over
// IPv4 (plain.h) is compared with it, 16 bytes at a time. Fields that may differ from frame to
// frame are masked: length, identification, time to live and class of IP, DF, PSH, window,
// checksums and the timestamps.
// Owner: the flow, or its scoreboard. Thread: holder of the engine's lock. Source: header
// prediction (Van Jacobson), for the whole frame.
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
/// Header length and flags but PSH, kind of the options.
alignas(16) inline constexpr Lane kTcpMask{0xff, 0xf7, 0,    0,    0, 0, 0, 0,
                                           0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};
/// Destination and ports.
alignas(16) inline constexpr Lane kUdpMask{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                           0,    0,    0,    0,    0,    0,    0,    0};

inline __m128i lane(const Lane& l) noexcept {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(l.data()));
}
/// What differs between a frame at any address and what is kept, which is aligned.
inline __m128i difference(const std::byte* frame, const std::byte* kept) noexcept {
  return _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(frame)),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(kept)));
}

/// Fields, as numbers.
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

/// The IP header and the ports of what comes on `path`.
inline void write_path(std::byte* ip, const PlainPath<false>& path, IpProto proto) noexcept {
  ip[0] = std::byte{0x45};
  ip[9] = static_cast<std::byte>(proto);
  std::memcpy(ip + 12, path.addresses, sizeof path.addresses);
  std::memcpy(ip + 20, &path.ports, sizeof path.ports);
}

}  // namespace detail

// ---- of a frame that matches, over IPv4 without options: what is not compared

/// Bytes of the IP packet behind its header; what IP says, however long the frame is.
inline unsigned expected_l4_bytes(const std::byte* frame) noexcept {
  return unsigned{detail::half(frame + 16)} - unsigned{sizeof(Ipv4Header)};
}
/// True if the IP header's sum is right: it is not all zeros.
inline bool is_expected_ip_sum_good(const std::byte* frame) noexcept {
  const uint64_t sum = checksum::detail::load<uint32_t>(frame + 30);
  return checksum::detail::add_words<2, 14>(sum, frame) % 0xffff == 0;
}

/// A segment with ACK, perhaps PSH, timestamps, and these numbers.
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
  /// Requires is_set(), and a frame in whose buffer 66 bytes may be read.
  bool matches(const std::byte* frame) const noexcept {
    const std::byte* const ip = frame + detail::kIpAt;
    const auto miss = [&](unsigned at) { return detail::difference(ip + at, bytes_.data() + at); };
    const __m128i all =
        _mm_or_si128(_mm_or_si128(_mm_and_si128(miss(0), detail::lane(detail::kIpMask)), miss(16)),
                     _mm_and_si128(miss(32), detail::lane(detail::kTcpMask)));
    return detail::is_ipv4(frame) && _mm_testz_si128(all, all) != 0;
  }
  /// True if `payload_sum`, not folded, with all before it makes the sum of the segment right.
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
  alignas(16) std::array<std::byte, 48> bytes_{};  ///< from the IP header to the options' kind
};

/// A datagram; one like the one before, but for its text, is known by one look.
class ExpectedUdp {
 public:
  void set(const PlainPath<false>& path) noexcept {
    detail::write_path(path_.data(), path, IpProto::kUdp);
  }
  /// Its headers are to the bit those of the last one that was accepted: it has bytes() of payload,
  /// if the frame is long enough. Requires a frame in whose buffer 46 bytes may be read.
  bool repeats(const std::byte* frame) const noexcept {
    const __m128i all = _mm_or_si128(detail::difference(frame + kLastAt, last_.data()),
                                     detail::difference(frame + kLastAt + 12, more_.data()));
    return _mm_testz_si128(all, all) != 0;
  }
  size_t bytes() const noexcept { return bytes_; }
  /// It may begin a row of those. @return false: its headers are not right, or it is empty.
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
  /// As ExpectedTcp's, of one that was accepted or repeats; its checksum may be left out.
  bool is_sum_good(const std::byte* frame, uint64_t payload_sum) const noexcept {
    const auto field = checksum::detail::load<uint16_t>(frame + 40);
    return checksum::add(checksum::add(sum_, field), payload_sum) % 0xffff == 0 || field == 0;
  }

 private:
  static constexpr unsigned kHeader = 8;
  static constexpr unsigned kLastAt = 12;
  alignas(16) std::array<std::byte, 16> last_{};  ///< of a frame from kLastAt on; zero: of none
  alignas(16) std::array<std::byte, 16> more_{};  ///< ... and from 12 further on: to its length
  uint64_t sum_ = 0;                              ///< of what the checksum covers of those
  size_t bytes_ = 0;
  alignas(16) std::array<std::byte, 32> path_{};  ///< as it begins; zero: nothing is expected
};

}  // namespace vireo::wire
