// Finds the known name nearest to a mistyped one.
// Owner: none (functions). Thread: any.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace vireo {

/// Number of characters to insert, remove, replace or swap with a neighbour to turn `a` into `b`
/// (optimal string alignment); case is ignored. `limit` + 1 if more than `limit`, or if a name is
/// longer than 64.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit);

/// The first of `names` with the smallest distance to `name`, if that is at most a third of its
/// length, at least 1; empty if none is near.
std::string_view nearest(std::string_view name, std::span<const std::string_view> names);

}  // namespace vireo
