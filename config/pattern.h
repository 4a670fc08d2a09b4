// Shell patterns for program names.
// Owner: none (functions). Thread: any. Source: fnmatch(3), glob(7).
#pragma once

#include <string_view>

namespace vireo {

/// * matches any characters, ? one, [a-c] and [!a-c] one of a set; \ escapes the next character. As
/// fnmatch(3) without flags in the C locale, but in time |pattern| x |text| at most.
bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace vireo
