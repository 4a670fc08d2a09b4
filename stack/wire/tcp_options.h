// TCP options: parsed in one pass into plain data, written in the common layouts that receivers
// predict. Malformed options are handled as in Linux (tcp_parse_options): the options before the
// error count, the rest is ignored. Owner: none (values). Thread: any.
// Source: RFC 9293 §3.2, RFC 7323 §2.2 and §3.2, RFC 2018 §2 and §3, RFC 7413 §4.1.1.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "core/byteorder.h"
#include "core/seq.h"

namespace vireo::wire {

enum class TcpOption : uint8_t {
  kEnd = 0,
  kNop = 1,
  kMss = 2,
  kWindowScale = 3,
  kSackPermitted = 4,
  kSack = 5,
  kTimestamps = 8,
  kFastOpen = 34,
};

/// A range of bytes received beyond the cumulative ACK: [left, right).
struct SackBlock {
  Seq32 left;
  Seq32 right;
  bool operator==(const SackBlock&) const = default;
};

struct TcpOptions {
  bool has_timestamps = false;
  bool has_mss = false;           ///< SYN only; an MSS of 0 counts as absent
  bool has_window_scale = false;  ///< SYN only
  bool sack_permitted = false;    ///< SYN only
  bool has_fast_open = false;     ///< SYN only
  uint8_t window_scale = 0;       ///< at most 14 (RFC 7323 §2.3)
  uint8_t sack_count = 0;         ///< as received; the caller checks the blocks
  uint16_t mss = 0;
  uint32_t ts_val = 0;
  uint32_t ts_ecr = 0;
  std::array<SackBlock, 4> sack{};
  std::span<const uint8_t> fast_open;  ///< the cookie, empty: a request; borrowed from the input
};

inline constexpr uint32_t kTimestampsWord = 0x0101080a;  ///< NOP, NOP, kind 8, length 10
inline constexpr unsigned kTimestampsBytes = 12;
inline constexpr uint8_t kMaxWindowScale = 14;

/// The layout of most segments: NOP NOP timestamps, nothing else. One compare.
inline bool parse_aligned_timestamps(std::span<const uint8_t> options, uint32_t& ts_val,
                                     uint32_t& ts_ecr) noexcept {
  if (options.size() != kTimestampsBytes) return false;
  be32 w[3];
  std::memcpy(static_cast<void*>(w), options.data(), sizeof w);
  if (w[0].raw() != be32(kTimestampsWord).raw()) return false;
  ts_val = w[1];
  ts_ecr = w[2];
  return true;
}

/// The layout of Linux's SYN and ours: MSS, SACK permitted and timestamps, NOP and window scale,
/// nothing else. @return false: another layout; `o` is unchanged.
bool parse_usual_syn(std::span<const uint8_t> options, TcpOptions& o) noexcept;

/// Parses any layout. `syn`: the segment has SYN, so the options of the handshake count.
TcpOptions parse_tcp_options_slow(std::span<const uint8_t> options, bool syn) noexcept;

inline TcpOptions parse_tcp_options(std::span<const uint8_t> options, bool syn) noexcept {
  TcpOptions o;
  if (options.empty()) return o;
  if (parse_aligned_timestamps(options, o.ts_val, o.ts_ecr)) [[likely]] {
    o.has_timestamps = true;
    return o;
  }
  if (syn && parse_usual_syn(options, o)) [[likely]]
    return o;
  return parse_tcp_options_slow(options, syn);
}

/// Writes the option bytes of a segment, padded to words; at most 40.
class TcpOptionWriter {
 public:
  explicit TcpOptionWriter(std::span<uint8_t, 40> out) noexcept : out_(out) {}

  void mss(uint16_t v) noexcept {
    put(uint32_t{static_cast<uint8_t>(TcpOption::kMss)} << 24 | 4U << 16 | v);
  }
  void window_scale(uint8_t shift) noexcept { put(0x01030300U | shift); }
  /// NOP NOP SACK-permitted; in a SYN with timestamps use sack_permitted_and_timestamps().
  void sack_permitted() noexcept { put(0x01010402U); }
  void timestamps(uint32_t val, uint32_t ecr) noexcept {
    put(kTimestampsWord);
    put(val);
    put(ecr);
  }
  void sack_permitted_and_timestamps(uint32_t val, uint32_t ecr) noexcept {
    put(0x0402080aU);
    put(val);
    put(ecr);
  }
  /// As many of `blocks` as fit, in order. @return their number.
  unsigned sack(std::span<const SackBlock> blocks) noexcept {
    if (blocks.empty() || room() < 12) return 0;
    const auto n = static_cast<unsigned>(std::min<size_t>(blocks.size(), (room() - 4) / 8));
    put(0x01010500U | (2 + 8 * n));
    for (unsigned i = 0; i < n; ++i) {
      put(blocks[i].left.value());
      put(blocks[i].right.value());
    }
    return n;
  }
  /// A cookie of 4 to 16 bytes, or none to request one (RFC 7413 §4.1.1), padded by NOPs.
  void fast_open(std::span<const uint8_t> cookie) noexcept {
    uint8_t b[20];
    const size_t length = 2 + cookie.size();
    if (length > sizeof b) return;
    std::memset(b, static_cast<uint8_t>(TcpOption::kNop), sizeof b);
    b[0] = static_cast<uint8_t>(TcpOption::kFastOpen);
    b[1] = static_cast<uint8_t>(length);
    if (!cookie.empty()) std::memcpy(b + 2, cookie.data(), cookie.size());
    for (size_t i = 0; i < length; i += 4) {
      be32 w;
      std::memcpy(static_cast<void*>(&w), b + i, 4);
      put(w);
    }
  }
  uint8_t size() const noexcept { return size_; }
  unsigned room() const noexcept { return 40U - size_; }

 private:
  void put(uint32_t word) noexcept {
    if (room() < 4) return;
    const be32 w(word);
    std::memcpy(&out_[size_], &w, 4);
    size_ = static_cast<uint8_t>(size_ + 4);
  }
  std::span<uint8_t, 40> out_;
  uint8_t size_ = 0;
};

/// Options of a SYN or SYN-ACK.
struct SynOptions {
  uint16_t mss = 536;
  std::optional<uint8_t> window_scale;
  bool sack_permitted = false;
  bool timestamps = false;
  uint32_t ts_val = 0;
  uint32_t ts_ecr = 0;
};
/// Writes them in Linux's order: MSS, SACK-permitted with timestamps, window scale. @return bytes,
/// a multiple of 4.
uint8_t emit_syn_options(std::span<uint8_t, 40> out, const SynOptions& o) noexcept;

}  // namespace vireo::wire
