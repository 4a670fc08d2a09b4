// Finds the processes that use Vireo: each has a memfd "vireo-stats" (core/stats_layout.h), visible
// in /proc/PID/fd (proc(5)). Owner: the caller. Thread: any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/stats_reading.h"

namespace vireo {

struct Scan {
  std::vector<ProcessReading> processes;  ///< by PID, as in /proc
  unsigned forbidden = 0;                 ///< processes of other users, not accessible
  std::vector<std::string> unread;        ///< "pid 12: version 1, this tool reads 2"
};

/// Reads all processes below `proc`, or `only`. Omits a process that ends meanwhile.
Scan scan_processes(std::optional<int> only, const std::string& proc = "/proc");

}  // namespace vireo
