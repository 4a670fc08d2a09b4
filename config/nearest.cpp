#include "config/nearest.h"

#include <algorithm>
#include <array>

namespace vireo {
namespace {

constexpr size_t kMax = 64;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  if (a.size() > kMax || b.size() > kMax) return limit + 1;
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > limit) return limit + 1;
  // Distances of a[0, i) to each prefix of b: this i, the one before, and the one before that.
  std::array<std::array<size_t, kMax + 1>, 3> rows;
  auto* row = rows.data();
  auto* last = row + 1;
  auto* before = row + 2;
  for (size_t j = 0; j <= b.size(); ++j) (*row)[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto* const oldest = before;
    before = last;
    last = row;
    row = oldest;
    (*row)[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      (*row)[j] = std::min({(*last)[j] + 1, (*row)[j - 1] + 1, (*last)[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) (*row)[j] = std::min((*row)[j], (*before)[j - 2] + 1);
    }
  }
  return std::min((*row)[b.size()], limit + 1);
}

std::string_view nearest(std::string_view name, std::span<const std::string_view> names) {
  const size_t limit = std::max<size_t>(1, name.size() / 3);
  size_t best = limit + 1;
  std::string_view found;
  for (const std::string_view n : names) {
    const size_t d = edit_distance(name, n, limit);
    if (d < best) {
      best = d;
      found = n;
    }
  }
  return found;
}

}  // namespace vireo
