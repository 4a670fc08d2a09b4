// Formats counters as text: tables of processes, sockets and reasons. Pure functions of the
// readings, so that tests need no process. Owner: none (functions). Thread: any.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/stats_reading.h"

namespace vireo {

struct ViewOptions {
  bool verbose = false;  ///< engine counters, closed sockets
};

/// A process: interfaces, carried sockets, sockets not carried with the reason, decisions. If
/// `before`, read `since` ago, is given, packet and byte columns are rates per second.
std::string process_view(const ProcessReading& now, const ProcessReading* before, Duration since,
                         const ViewOptions& options);

/// For all processes: how often each reason occurred, its meaning and the remedy.
std::string reasons_view(std::span<const ProcessReading> all);

/// Formats cells in columns, two spaces apart. A column whose first cell begins with '>' is aligned
/// right (the sign is not shown).
std::string columns(const std::vector<std::vector<std::string>>& rows, std::string_view indent);

/// 1234 -> "1234", 1234567 -> "1235k": at most six characters.
std::string short_number(uint64_t n);

}  // namespace vireo
