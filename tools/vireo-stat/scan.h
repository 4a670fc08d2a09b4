// Finds the processes that use Vireo: each holds a memfd "vireo-stats" (core/stats_layout.h), seen
// in /proc/PID/fd (proc(5)). Owner: the caller. Thread: any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/stats_reading.h"

namespace vireo {

struct Scan {
  std::vector<ProcessReading> processes;  ///< by pid, as /proc numbers them
  unsigned forbidden = 0;                 ///< processes of other users that we may not look into
  std::vector<std::string> unread;        ///< "pid 12: version 1, this tool reads 2"
};

/// Looks at all processes below `proc`, or at `only`. A process that ends meanwhile is left out.
Scan scan_processes(std::optional<int> only, const std::string& proc = "/proc");

}  // namespace vireo
