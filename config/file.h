// Reads a small text file as a whole: a sysctl, the rules file.
// Uses stdio, which calls the kernel by libc-internal names, not by the calls that Vireo
// interposes. Owner: none (functions). Thread: any.
#pragma once

#include <string>

#include "core/result.h"

namespace vireo {

/// The bytes of `path`, at most `most`. Errors: those of open(2) and read(2); EFBIG if it is
/// longer.
Result<std::string> read_file(const std::string& path, size_t most);

}  // namespace vireo
