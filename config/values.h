// Reads and writes the value of one setting as text, and describes its range. A failed read leaves
// the value unchanged and returns the reason as static text.
// Owner: none (functions). Thread: any. Source: settings.def lists the forms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/nearest.h"
#include "config/settings.h"

namespace vireo {

enum Unit : int64_t {  ///< nanoseconds of a unit of time
  kNanosecond = 1,
  kMicrosecond = 1'000,
  kMillisecond = 1'000'000,
  kSecond = 1'000'000'000,
};

/// Permitted values of a setting, in counts, bytes or nanoseconds.
struct Limits {
  enum class Form : uint8_t { kAny, kRange, kZeroOrRange, kPowerOfTwo };
  Form form = Form::kAny;
  int64_t min = 0;
  int64_t max = 0;
  Unit unit = kNanosecond;  ///< unit of a bare number, for a Duration
};
constexpr Limits any() { return {}; }
constexpr Limits count(int64_t min, int64_t max) { return {Limits::Form::kRange, min, max}; }
constexpr Limits bytes(int64_t min, int64_t max) { return {Limits::Form::kRange, min, max}; }
constexpr Limits zero_or(int64_t min, int64_t max) {
  return {Limits::Form::kZeroOrRange, min, max};
}
constexpr Limits power_of_two(int64_t min, int64_t max) {
  return {Limits::Form::kPowerOfTwo, min, max};
}
/// `min` and `max` in `unit`s. A min of -1 permits -1 itself (no limit) and then 0 to max.
constexpr Limits time_in(Unit unit, int64_t min, int64_t max) {
  return {Limits::Form::kRange, min * unit, max * unit, unit};
}

/// Why a text was refused; nullopt: it was accepted.
using Refusal = std::optional<std::string_view>;

Refusal read_value(std::string_view text, const Limits& limits, bool& out);
Refusal read_value(std::string_view text, const Limits& limits, int& out);
Refusal read_value(std::string_view text, const Limits& limits, Bytes& out);
Refusal read_value(std::string_view text, const Limits& limits, Duration& out);
Refusal read_value(std::string_view text, const Limits& limits, std::string& out);
Refusal read_value(std::string_view text, const Limits& limits, StringList& out);
Refusal read_value(std::string_view text, const Limits& limits, CpuList& out);
/// The value of the spelling `text`, ignoring case; nullopt if there is none.
std::optional<int> read_choice(std::string_view text, std::span<const ChoiceName> names);

template <ChoiceEnum E>
Refusal read_value(std::string_view text, const Limits&, E& out) {
  const auto v = read_choice(text, kChoices<E>);
  if (!v) return "not one of its words";
  out = static_cast<E>(*v);
  return std::nullopt;
}

std::string value_text(bool v, const Limits& limits);
std::string value_text(int v, const Limits& limits);
std::string value_text(Bytes v, const Limits& limits);
std::string value_text(Duration v, const Limits& limits);
std::string value_text(const std::string& v, const Limits& limits);
std::string value_text(const StringList& v, const Limits& limits);
std::string value_text(const CpuList& v, const Limits& limits);
std::string choice_text(int v, std::span<const ChoiceName> names);

template <ChoiceEnum E>
std::string value_text(E v, const Limits&) {
  return choice_text(static_cast<int>(v), kChoices<E>);
}

/// The type of a value in a word or two, and its permitted values.
struct Description {
  std::string type;
  std::string range;
};
Description describe(const bool*, const Limits& limits);
Description describe(const int*, const Limits& limits);
Description describe(const Bytes*, const Limits& limits);
Description describe(const Duration*, const Limits& limits);
Description describe(const std::string*, const Limits& limits);
Description describe(const StringList*, const Limits& limits);
Description describe(const CpuList*, const Limits& limits);
Description describe_choice(std::span<const ChoiceName> names);

template <ChoiceEnum E>
Description describe(const E*, const Limits&) {
  return describe_choice(kChoices<E>);
}

/// The spellings of a setting's words; empty if it is not a choice. For suggesting the nearest.
template <class T>
std::span<const ChoiceName> words_of() {
  if constexpr (ChoiceEnum<T>)
    return kChoices<T>;
  else
    return {};
}

}  // namespace vireo
