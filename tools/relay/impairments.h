// The relay's impairments: their parameters as one line of text, and the deterministic random draws
// that decide about each frame. Owner: main. Thread: any, after parsing.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

namespace relay {

using Nanos = int64_t;

[[noreturn]] inline void die(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(2);
}

/// Probabilities are in steps of 2^-32, so that a 32-bit hash can be compared with them.
struct Impairments {
  uint64_t loss = 0;        ///< lost before the queue
  uint64_t loss_after = 0;  ///< lost after transmission: the frame has used time on the wire
  uint64_t dup = 0, corrupt = 0, reorder = 0;
  Nanos delay = 0, jitter = 0;
  double bits_per_second = 0;         // 0: no limit
  uint64_t limit = 1000;              // most frames that wait for the wire, per direction
  uint64_t queue_bytes = UINT64_MAX;  // most bytes that wait for the wire, per direction
  uint64_t marked = 0;                // 1: lose segments with a mark (mark.h)
  uint64_t seed = 1;

  bool must_queue() const { return delay > 0 || jitter > 0 || bits_per_second > 0; }
};

namespace parsing {

struct Quantity {
  double value;
  std::string_view unit;
};

inline Quantity split(std::string_view key, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0))
    die("relay: " + std::string(key) + "=" + std::string(text) + ": not a number of zero or more");
  return {value, text.substr(static_cast<size_t>(end - text.data()))};
}

struct Unit {
  std::string_view name;
  double factor;
};

inline double scaled(std::string_view key, std::string_view text, std::span<const Unit> units) {
  const Quantity q = split(key, text);
  std::string known;
  for (const Unit& u : units) {
    if (u.name == q.unit) return q.value * u.factor;
    known += (known.empty() ? "" : " ") + (u.name.empty() ? "(none)" : std::string(u.name));
  }
  die("relay: " + std::string(key) + "=" + std::string(text) + ": the unit is one of: " + known);
}

inline uint64_t chance(std::string_view key, std::string_view text) {
  constexpr std::array<Unit, 2> kUnits{{{"%", 0.01}, {"", 1.0}}};
  const double p = scaled(key, text, kUnits);
  if (p > 1) die("relay: " + std::string(key) + "=" + std::string(text) + ": more than 100%");
  return static_cast<uint64_t>(p * 4294967296.0);
}

inline Nanos duration(std::string_view key, std::string_view text) {
  constexpr std::array<Unit, 4> kUnits{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  return static_cast<Nanos>(scaled(key, text, kUnits));
}

inline double rate(std::string_view key, std::string_view text) {
  constexpr std::array<Unit, 4> kUnits{{{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}};
  return scaled(key, text, kUnits);
}

inline uint64_t bytes(std::string_view key, std::string_view text) {
  constexpr std::array<Unit, 3> kUnits{{{"b", 1}, {"kb", 1e3}, {"mb", 1e6}}};
  return static_cast<uint64_t>(scaled(key, text, kUnits));
}

inline uint64_t count(std::string_view key, std::string_view text) {
  constexpr std::array<Unit, 1> kUnits{{{"", 1}}};
  return static_cast<uint64_t>(scaled(key, text, kUnits));
}

}  // namespace parsing

/// "loss=1%,delay=1ms,rate=1gbit,queue=125kb"; exits with an error if it cannot be parsed.
inline Impairments parse(std::string_view text) {
  using namespace parsing;
  Impairments im;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals == item.npos ? "" : item.substr(equals + 1);
    if (key == "loss")
      im.loss = chance(key, value);
    else if (key == "loss_after")
      im.loss_after = chance(key, value);
    else if (key == "dup")
      im.dup = chance(key, value);
    else if (key == "corrupt")
      im.corrupt = chance(key, value);
    else if (key == "reorder")
      im.reorder = chance(key, value);
    else if (key == "delay")
      im.delay = duration(key, value);
    else if (key == "jitter")
      im.jitter = duration(key, value);
    else if (key == "rate")
      im.bits_per_second = rate(key, value);
    else if (key == "limit")
      im.limit = count(key, value);
    else if (key == "queue")
      im.queue_bytes = bytes(key, value);
    else if (key == "marked")
      im.marked = count(key, value);
    else if (key == "seed")
      im.seed = count(key, value);
    else
      die("relay: no impairment " + std::string(key) +
          "; known: loss loss_after dup corrupt reorder delay jitter rate limit queue marked seed");
  }
  return im;
}

enum class Draw : uint64_t { loss = 1, dup, corrupt, reorder, hold, jitter, bits, loss_after };

/// splitmix64 over the identity of the draw: stateless, so one draw never shifts another.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t direction) : base_(mix(seed * 2 + direction + 0x9e3779b97f4a7c15)) {}
  uint64_t roll(uint64_t frame, Draw draw, uint64_t index = 0) const {
    return mix(base_ ^ mix(frame * 16 + static_cast<uint64_t>(draw)) ^
               (index * 0xd1342543de82ef95));
  }
  bool hits(uint64_t frame, Draw draw, uint64_t chance) const {
    return (roll(frame, draw) >> 32) < chance;
  }

 private:
  static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  uint64_t base_;
};

}  // namespace relay
