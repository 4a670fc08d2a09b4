#include "stack/wire/tcp_options.h"

namespace vireo::wire {
namespace {

template <class T>
T read(const uint8_t* p) {
  BigEndian<T> v;
  std::memcpy(static_cast<void*>(&v), p, sizeof v);
  return v;
}

/// Reads one complete option of length `n` >= 2. A kind with a wrong length is ignored.
void take(TcpOptions& o, const uint8_t* p, unsigned n, bool syn) {
  switch (static_cast<TcpOption>(p[0])) {
    case TcpOption::kMss:
      if (n == 4 && syn && read<uint16_t>(p + 2) != 0) {
        o.has_mss = true;
        o.mss = read<uint16_t>(p + 2);
      }
      break;
    case TcpOption::kWindowScale:
      if (n == 3 && syn) {
        o.has_window_scale = true;
        o.window_scale = std::min(p[2], kMaxWindowScale);
      }
      break;
    case TcpOption::kSackPermitted:
      if (n == 2 && syn) o.sack_permitted = true;
      break;
    case TcpOption::kSack:
      if (n >= 10 && (n - 2) % 8 == 0 && !syn) {
        o.sack_count = static_cast<uint8_t>(std::min<size_t>((n - 2) / 8, o.sack.size()));
        for (unsigned i = 0; i < o.sack_count; ++i)
          o.sack[i] = {Seq32(read<uint32_t>(p + 2 + 8 * i)), Seq32(read<uint32_t>(p + 6 + 8 * i))};
      }
      break;
    case TcpOption::kTimestamps:
      if (n == 10) {
        o.has_timestamps = true;
        o.ts_val = read<uint32_t>(p + 2);
        o.ts_ecr = read<uint32_t>(p + 6);
      }
      break;
    case TcpOption::kFastOpen:  // RFC 7413 §4.1.1: 4 to 16 bytes, an even number, or none
      if (syn && (n == 2 || (n >= 6 && n <= 18 && n % 2 == 0))) {
        o.has_fast_open = true;
        o.fast_open = {p + 2, n - 2};
      }
      break;
    default:
      break;
  }
}

}  // namespace

bool parse_usual_syn(std::span<const uint8_t> options, TcpOptions& o) noexcept {
  constexpr uint16_t kMss = 0x0204;
  constexpr uint32_t kSackPermittedTimestamps = 0x0402080a;
  constexpr uint32_t kNopWindowScale = 0x010303;
  if (options.size() != 20) return false;
  const uint8_t* const p = options.data();
  const auto mss = read<uint16_t>(p + 2);
  const auto scale = read<uint32_t>(p + 16);
  if (read<uint16_t>(p) != kMss || mss == 0 || read<uint32_t>(p + 4) != kSackPermittedTimestamps ||
      scale >> 8 != kNopWindowScale)
    return false;
  o.has_mss = o.sack_permitted = o.has_timestamps = o.has_window_scale = true;
  o.mss = mss;
  o.ts_val = read<uint32_t>(p + 8);
  o.ts_ecr = read<uint32_t>(p + 12);
  o.window_scale = std::min(static_cast<uint8_t>(scale), kMaxWindowScale);
  return true;
}

TcpOptions parse_tcp_options_slow(std::span<const uint8_t> options, bool syn) noexcept {
  TcpOptions o;
  size_t at = 0;
  while (at < options.size()) {
    const auto kind = static_cast<TcpOption>(options[at]);
    if (kind == TcpOption::kEnd) break;
    if (kind == TcpOption::kNop) {
      ++at;
      continue;
    }
    const size_t left = options.size() - at;
    if (left < 2) break;
    const unsigned n = options[at + 1];
    if (n < 2 || n > left) break;
    take(o, options.data() + at, n, syn);
    at += n;
  }
  return o;
}

uint8_t emit_syn_options(std::span<uint8_t, 40> out, const SynOptions& o) noexcept {
  TcpOptionWriter w(out);
  w.mss(o.mss);
  if (o.timestamps && o.sack_permitted)
    w.sack_permitted_and_timestamps(o.ts_val, o.ts_ecr);
  else if (o.timestamps)
    w.timestamps(o.ts_val, o.ts_ecr);
  else if (o.sack_permitted)
    w.sack_permitted();
  if (o.window_scale) w.window_scale(*o.window_scale);
  return w.size();
}

}  // namespace vireo::wire
