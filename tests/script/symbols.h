// Names of the C library's constants, as scripts write them.
// Owner: none. Thread: any.
#pragma once

#include <cstdint>
#include <string>

namespace vireo::script {

/// A number, a name, or names joined by `|`. False: unknown.
bool constant(const std::string& text, int64_t& out);
/// "ECONNRESET" for 104.
std::string errno_name(int error);

}  // namespace vireo::script
