// Log lines for the operator: one per event, never on the hot path. Levels are libvma's
// (VMA_TRACELEVEL). Owner: process. Thread: any; a line is one write(2).
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <string_view>

namespace vireo {

enum class LogLevel : int {
  kNone = -2,
  kPanic = -1,
  kError = 0,
  kWarn = 1,
  kInfo = 2,
  kDetails = 3,
  kDebug = 4,
  kFine = 5,
  kAll = 6
};

/// Destination and level of log lines. Set once at load from the settings.
struct LogSink {
  static inline std::atomic<int> level{static_cast<int>(LogLevel::kWarn)};
  static inline std::atomic<int> fd{2};
  /// Writes "Vireo <level>: <text>\n" to fd with one write(2); errors are ignored. errno is
  /// preserved. Not to a standard error that now is a connection or data file of the program
  /// (log.cpp).
  static void write(LogLevel level, std::string_view text);
};

inline bool log_enabled(LogLevel l) {
  return static_cast<int>(l) <= LogSink::level.load(std::memory_order_relaxed);
}

/// log<LogLevel::kWarn>("{}: XDP is taken by another program", ifname)
template <LogLevel L, class... A>
void log(fmt::format_string<A...> f, A&&... args) {
  if (!log_enabled(L)) return;
  fmt::memory_buffer line;
  fmt::vformat_to(std::back_inserter(line), f, fmt::make_format_args(args...));
  LogSink::write(L, {line.data(), line.size()});
}

}  // namespace vireo
