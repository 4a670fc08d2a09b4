// A socket's counters in one line, as vireo-stat names them.
#include "stack/extra/fd_stats.h"

#include <algorithm>
#include <iterator>

#include "core/log.h"
#include "core/stats_json.h"
#include "core/stats_reading.h"

namespace vireo::extra {

void log_fd_stats(Stack& stack, int fd, int level) {
  const auto l = static_cast<LogLevel>(
      std::clamp(level, static_cast<int>(LogLevel::kNone), static_cast<int>(LogLevel::kAll)));
  const StatsLayout* const all = stack.counters().if_any();
  if (all == nullptr || l == LogLevel::kNone || !log_enabled(l)) return;
  for (const SocketReading& s : read_stats(*all).sockets) {
    if (s.closed || (fd != 0 && s.fd != fd)) continue;
    fmt::memory_buffer line;
    fmt::format_to(std::back_inserter(line), "descriptor {}: {} {} local {} remote {} {}", s.fd,
                   s.tcp ? "tcp" : "udp", s.state(), endpoint_text(s.local, s.v6),
                   endpoint_text(s.remote, s.v6), carriage_name(s.carriage));
    for (size_t i = 0; i < s.counts.size(); ++i)
      fmt::format_to(std::back_inserter(line), " {} {}", kSocketCounters[i].name, s.counts[i]);
    LogSink::write(l, {line.data(), line.size()});
  }
}

}  // namespace vireo::extra
