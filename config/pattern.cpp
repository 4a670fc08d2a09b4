#include "config/pattern.h"

#include <optional>

namespace vireo {
namespace {

/// Matches one character against the set that begins after `[` at `p[at]`; sets `end` after its
/// `]`. nullopt: no `]`, so the bracket is an ordinary character.
std::optional<bool> in_set(std::string_view p, size_t at, char c, size_t& end) {
  const bool negated = at < p.size() && (p[at] == '!' || p[at] == '^');
  if (negated) ++at;
  bool found = false;
  const auto letter = [&] {  // one member, escaped or not
    if (p[at] == '\\' && at + 1 < p.size()) ++at;
    return static_cast<unsigned char>(p[at++]);
  };
  const auto u = static_cast<unsigned char>(c);
  for (bool is_first = true; at < p.size(); is_first = false) {
    if (p[at] == ']' && !is_first) {
      end = at + 1;
      return found != negated;
    }
    const unsigned char low = letter();
    unsigned char high = low;
    if (at + 1 < p.size() && p[at] == '-' && p[at + 1] != ']') {
      ++at;
      high = letter();
    }
    found |= low <= u && u <= high;
  }
  return std::nullopt;
}

/// Matches the one-character element at `p[at]`, not `*`; sets `end` after it.
bool fits_letter(std::string_view p, size_t at, char c, size_t& end) {
  end = at + 1;
  switch (p[at]) {
    case '?':
      return true;
    case '[':
      if (const auto hit = in_set(p, at + 1, c, end)) return *hit;
      end = at + 1;
      return c == '[';
    case '\\':
      if (at + 1 == p.size()) return false;
      end = at + 2;
      return p[at + 1] == c;
    default:
      return p[at] == c;
  }
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  // Where to continue after a mismatch: the last star matches one more character. Earlier stars
  // need no retry.
  size_t star = pattern.npos;
  size_t star_text = 0;
  while (t < text.size()) {
    size_t end = 0;
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      star_text = t;
    } else if (p < pattern.size() && fits_letter(pattern, p, text[t], end)) {
      p = end;
      ++t;
    } else if (star != pattern.npos) {
      p = star;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace vireo
