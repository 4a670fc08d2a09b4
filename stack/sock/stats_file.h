// VMA_STATS_FILE: a process's counters, written at its end: one line of JSON (core/stats_json.h).
// Owner: Stack::write_stats_at_exit(). Thread: any; makes system calls, and none that is
// interposed.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace vireo {

/// Appends `line` and a newline by one write(2), so that lines of several processes are not mixed.
/// Creates the file if it is missing. Errors: those of open(2) and write(2); EIO after a short
/// write.
Result<void> append_line(const std::string& path, std::string_view line);

}  // namespace vireo
