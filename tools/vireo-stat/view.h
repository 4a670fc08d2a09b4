// Counters as text for people: tables of processes, sockets and reasons. Pure functions of what was
// read, so that a test needs no process. Owner: none (functions). Thread: any.
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

/// A process: its interfaces, sockets carried, sockets not carried with the reason, decisions.
/// `before`, taken `since` ago, turns the packet and byte columns into rates a second.
std::string process_view(const ProcessReading& now, const ProcessReading* before, Duration since,
                         const ViewOptions& options);

/// Over all processes: how often each reason was given, what it means and how to cure it.
std::string reasons_view(std::span<const ProcessReading> all);

/// Cells in columns as wide as needed, two spaces between. A column whose first row's cell begins
/// with '>' is set flush right (the sign is not shown).
std::string columns(const std::vector<std::vector<std::string>>& rows, std::string_view indent);

/// 1234 -> "1234", 1234567 -> "1235k": at most six characters.
std::string short_number(uint64_t n);

}  // namespace vireo
