// Shell patterns for program names.
// Owner: none (functions). Thread: any. Source: fnmatch(3), glob(7).
#pragma once

#include <string_view>

namespace vireo {

/// * stands for any letters, ? for one, [a-c] and [!a-c] for one of a set; \ takes the next letter
/// as it is. As fnmatch(3) without flags in the C locale, but in time |pattern| x |text| at most.
bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace vireo
