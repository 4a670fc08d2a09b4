#include "config/values.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>
#include <limits>

namespace vireo {
namespace {

constexpr std::string_view kNotWhole = "not a whole number";
constexpr std::string_view kNotBytes = "not a number of bytes (64k, 1m, 2g)";
constexpr std::string_view kNotTime = "not a time (100us, 10ms, 5s)";
constexpr std::string_view kOutOfRange = "out of range";
constexpr std::string_view kNotPower = "not a power of two";
constexpr std::string_view kNotCpus = "not a processor mask or list (0x5, 0,2-4)";

struct Suffix {
  std::string_view name;
  int64_t scale;
};
constexpr std::array kByteSuffixes = {
    Suffix{"b", 1},        Suffix{"k", 1 << 10},  Suffix{"kb", 1 << 10},  Suffix{"kib", 1 << 10},
    Suffix{"m", 1 << 20},  Suffix{"mb", 1 << 20}, Suffix{"mib", 1 << 20}, Suffix{"g", 1 << 30},
    Suffix{"gb", 1 << 30}, Suffix{"gib", 1 << 30}};
constexpr std::array kTimeSuffixes = {Suffix{"ns", kNanosecond},    Suffix{"us", kMicrosecond},
                                      Suffix{"usec", kMicrosecond}, Suffix{"ms", kMillisecond},
                                      Suffix{"msec", kMillisecond}, Suffix{"s", kSecond},
                                      Suffix{"sec", kSecond},       Suffix{"m", 60 * kSecond},
                                      Suffix{"min", 60 * kSecond},  Suffix{"h", 3600 * kSecond}};

bool equal_words(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? x + 32 : x) == (y >= 'A' && y <= 'Z' ? y + 32 : y);
  });
}

std::string_view trimmed(std::string_view t) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = t.find_first_not_of(kBlank);
  if (first == t.npos) return {};
  return t.substr(first, t.find_last_not_of(kBlank) - first + 1);
}

/// All of `t` as a number in `base`; nullopt if it is not one, or too large.
template <class T>
std::optional<T> whole(std::string_view t, int base = 10) {
  if (t.starts_with('+')) t.remove_prefix(1);
  T v = 0;
  const auto [end, ec] = std::from_chars(t.data(), t.data() + t.size(), v, base);
  if (ec != std::errc() || end != t.data() + t.size() || t.empty()) return std::nullopt;
  return v;
}

/// Digits, optional fraction, optional suffix: 1.5m. `bare` scales a number without a suffix. A
/// value beyond int64 gives int64's maximum, which no limits permit.
std::optional<int64_t> scaled(std::string_view t, std::span<const Suffix> suffixes, int64_t bare) {
  const size_t digits = std::min(t.find_first_not_of("0123456789"), t.size());
  if (digits == 0) return std::nullopt;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const int64_t number = whole<int64_t>(t.substr(0, digits)).value_or(kMax);
  t.remove_prefix(digits);

  int64_t fraction = 0;
  int64_t parts = 1;
  if (t.starts_with('.')) {
    t.remove_prefix(1);
    size_t n = 0;
    for (; n < t.size() && t[n] >= '0' && t[n] <= '9'; ++n) {
      if (parts >= 1'000'000'000) continue;  // beyond a nanosecond of a second
      fraction = fraction * 10 + (t[n] - '0');
      parts *= 10;
    }
    if (n == 0) return std::nullopt;
    t.remove_prefix(n);
  }

  t = trimmed(t);
  int64_t scale = bare;
  if (!t.empty()) {
    const auto s =
        std::ranges::find_if(suffixes, [&](const Suffix& x) { return equal_words(x.name, t); });
    if (s == suffixes.end()) return std::nullopt;
    scale = s->scale;
  }
  const auto v =
      static_cast<__int128>(number) * scale + static_cast<__int128>(fraction) * scale / parts;
  return v > kMax ? kMax : static_cast<int64_t>(v);
}

Refusal outside(int64_t v, const Limits& l) {
  switch (l.form) {
    case Limits::Form::kAny:
      return std::nullopt;
    case Limits::Form::kZeroOrRange:
      if (v == 0) return std::nullopt;
      break;
    case Limits::Form::kPowerOfTwo:
      if (v <= 0 || (v & (v - 1)) != 0) return kNotPower;
      break;
    case Limits::Form::kRange:
      break;
  }
  if (v < l.min || v > l.max) return kOutOfRange;
  return std::nullopt;
}

std::string bytes_text(int64_t v) {
  for (const auto& [name, scale] :
       {Suffix{"g", 1 << 30}, Suffix{"m", 1 << 20}, Suffix{"k", 1 << 10}})
    if (v != 0 && v % scale == 0) return std::to_string(v / scale).append(name);
  return std::to_string(v);
}

std::string time_text(int64_t ns) {
  if (ns < 0) return "-1";
  if (ns == 0) return "0";
  for (const auto& [name, scale] :
       {Suffix{"s", kSecond}, Suffix{"ms", kMillisecond}, Suffix{"us", kMicrosecond}})
    if (ns % scale == 0) return std::to_string(ns / scale).append(name);
  return std::to_string(ns) + "ns";
}

std::string range_text(const Limits& l, std::string (*text)(int64_t)) {
  const std::string range = text(l.min) + " to " + text(l.max);
  if (l.form == Limits::Form::kZeroOrRange) return "0, or " + range;
  if (l.form == Limits::Form::kPowerOfTwo) return "a power of two, " + range;
  return range;
}

std::string number_text(int64_t v) { return std::to_string(v); }

}  // namespace

Refusal read_value(std::string_view text, const Limits&, bool& out) {
  text = trimmed(text);
  for (const std::string_view yes : {"1", "yes", "true", "on"})
    if (equal_words(text, yes)) return out = true, std::nullopt;
  for (const std::string_view no : {"0", "no", "false", "off"})
    if (equal_words(text, no)) return out = false, std::nullopt;
  return "neither 0 nor 1";
}

Refusal read_value(std::string_view text, const Limits& limits, int& out) {
  const auto v = whole<int>(trimmed(text));
  if (!v) return kNotWhole;
  if (const Refusal r = outside(*v, limits)) return r;
  out = *v;
  return std::nullopt;
}

Refusal read_value(std::string_view text, const Limits& limits, Bytes& out) {
  const auto v = scaled(trimmed(text), kByteSuffixes, 1);
  if (!v) return kNotBytes;
  if (const Refusal r = outside(*v, limits)) return r;
  out = Bytes(*v);
  return std::nullopt;
}

Refusal read_value(std::string_view text, const Limits& limits, Duration& out) {
  text = trimmed(text);
  if (text == "-1" && limits.min < 0) {
    out = Duration::ns(-limits.unit);
    return std::nullopt;
  }
  if (text.starts_with('-')) return kOutOfRange;
  const auto v = scaled(text, kTimeSuffixes, limits.unit);
  if (!v) return kNotTime;
  if (const Refusal r = outside(*v, limits)) return r;
  out = Duration::ns(*v);
  return std::nullopt;
}

Refusal read_value(std::string_view text, const Limits&, std::string& out) {
  out = text;
  return std::nullopt;
}

Refusal read_value(std::string_view text, const Limits&, StringList& out) {
  StringList list;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (const auto word = trimmed(text.substr(at, comma - at)); !word.empty())
      list.emplace_back(word);
    at = comma + 1;
  }
  out = std::move(list);
  return std::nullopt;
}

Refusal read_value(std::string_view text, const Limits&, CpuList& out) {
  text = trimmed(text);
  if (text == "-1") return out = {}, std::nullopt;
  std::bitset<CPU_SETSIZE> set;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    // From the last digit, four processors each; any number of leading zeros is allowed.
    for (size_t i = 0; i < text.size(); ++i) {
      const auto digit = whole<unsigned>(text.substr(text.size() - 1 - i, 1), 16);
      if (!digit) return kNotCpus;
      for (size_t bit = 0; bit < 4; ++bit) {
        if ((*digit >> bit & 1) == 0) continue;
        if (i >= CPU_SETSIZE / 4) return kOutOfRange;
        set.set(i * 4 + bit);
      }
    }
  } else {
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      const std::string_view item = trimmed(text.substr(at, comma - at));
      const size_t dash = std::min(item.find('-'), item.size());
      const auto first = whole<unsigned>(item.substr(0, dash));
      const auto last = dash == item.size() ? first : whole<unsigned>(item.substr(dash + 1));
      if (!first || !last || *first > *last) return kNotCpus;
      if (*last >= CPU_SETSIZE) return kOutOfRange;
      for (unsigned cpu = *first; cpu <= *last; ++cpu) set.set(cpu);
      at = comma + 1;
    }
  }
  if (set.none()) return kNotCpus;
  CpuList list;
  for (size_t cpu = 0; cpu < set.size(); ++cpu)
    if (set[cpu]) list.cpus.push_back(static_cast<int>(cpu));
  out = std::move(list);
  return std::nullopt;
}

std::optional<int> read_choice(std::string_view text, std::span<const ChoiceName> names) {
  text = trimmed(text);
  for (const auto& c : names)
    if (equal_words(c.name, text)) return c.value;
  return std::nullopt;
}

std::string value_text(bool v, const Limits&) { return v ? "1" : "0"; }
std::string value_text(int v, const Limits&) { return std::to_string(v); }
std::string value_text(Bytes v, const Limits&) { return bytes_text(v.value()); }
std::string value_text(Duration v, const Limits&) { return time_text(v.ns()); }
std::string value_text(const std::string& v, const Limits&) { return v; }

std::string value_text(const StringList& v, const Limits&) {
  std::string text;
  for (const auto& word : v) text.append(text.empty() ? "" : ",").append(word);
  return text;
}

std::string value_text(const CpuList& v, const Limits&) {
  if (v.cpus.empty()) return "-1";
  std::string text;
  for (size_t i = 0; i < v.cpus.size();) {
    size_t end = i;  // of a run of consecutive ones
    while (end + 1 < v.cpus.size() && v.cpus[end + 1] == v.cpus[end] + 1) ++end;
    text.append(text.empty() ? "" : ",").append(std::to_string(v.cpus[i]));
    if (end > i) text.append("-").append(std::to_string(v.cpus[end]));
    i = end + 1;
  }
  return text;
}

std::string choice_text(int v, std::span<const ChoiceName> names) {
  const auto c = std::ranges::find(names, v, &ChoiceName::value);
  return c == names.end() ? std::to_string(v) : std::string(c->name);
}

Description describe(const bool*, const Limits&) { return {"switch", "0 or 1"}; }
Description describe(const int*, const Limits& l) { return {"number", range_text(l, number_text)}; }
Description describe(const Bytes*, const Limits& l) { return {"bytes", range_text(l, bytes_text)}; }

Description describe(const Duration*, const Limits& l) {
  const auto unit = std::ranges::find(kTimeSuffixes, static_cast<int64_t>(l.unit), &Suffix::scale);
  std::string type = "time, in " + std::string(unit->name) + " if bare";
  if (l.min < 0) return {std::move(type), "-1 (for ever), or 0 to " + time_text(l.max)};
  return {std::move(type), range_text(l, time_text)};
}

Description describe(const std::string*, const Limits&) { return {"text", "any text"}; }
Description describe(const StringList*, const Limits&) { return {"list", "words between commas"}; }
Description describe(const CpuList*, const Limits&) {
  return {"processors",
          "a mask (0x5), a list (0,2-4), or -1; processors below " + std::to_string(CPU_SETSIZE)};
}

Description describe_choice(std::span<const ChoiceName> names) {
  std::string range;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto same = [&](const ChoiceName& c) { return c.value == names[i].value; };
    if (std::ranges::any_of(names.first(i), same)) continue;  // an alias
    range.append(range.empty() ? "" : ", ").append(names[i].name);
    // Its number in libvma, if it has one.
    for (const auto& c : names.subspan(i + 1))
      if (same(c) && whole<int>(c.name)) range.append(" (").append(c.name).append(")");
  }
  return {"word", std::move(range)};
}

}  // namespace vireo
