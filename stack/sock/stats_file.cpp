// Writes the line of VMA_STATS_FILE at the end of the process.
#include "stack/sock/stats_file.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>

#include "core/fd.h"
#include "core/log.h"
#include "core/stats_json.h"
#include "stack/sock/stack.h"
#include "stack/tcp/tcp.h"

namespace vireo {

// core has the names of the states by number.
static_assert(static_cast<int>(tcp::State::kClosed) == 0 &&
              static_cast<int>(tcp::State::kEstablished) == 3 &&
              static_cast<int>(tcp::State::kCloseWait) == 6 &&
              static_cast<int>(tcp::State::kTimeWait) == 9);

Result<void> append_line(const std::string& path, std::string_view line) {
  const UniqueFd file(static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(),
                                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)));
  if (!file) return fail_errno("open");
  std::string text(line);
  text += '\n';
  const auto n = ::syscall(SYS_write, file.get(), text.data(), text.size());
  if (n < 0) return fail_errno("write");
  if (static_cast<size_t>(n) != text.size()) return fail(EIO, "write");
  return {};
}

void Stack::write_stats_at_exit() {
  const StatsLayout* all = counters_.if_any();
  if (all == nullptr || parts_.settings.stats_file.empty() || !is_owner()) return;
  const pid_t self = ::getpid();
  // Once only: exit() may be followed by _exit().
  if (!counters_.begin_file(self)) return;
  const int saved = errno;
  // Adds the last second's losses. If the lock is never released, the counters stay as they are.
  for_each_engine([](Engine& e) VIREO_NO_THREAD_ANALYSIS {
    if (!e.try_acquire()) return;
    e.ports().count_losses();
    e.unlock();
  });
  const ProcessReading now = read_stats(*all);
  const std::string path = with_pid(parts_.settings.stats_file, self);
  if (const auto done = append_line(path, processes_json({&now, 1})); !done)
    log<LogLevel::kWarn>("VMA_STATS_FILE={}: cannot be written ({})", path,
                         std::strerror(done.error().code));
  errno = saved;
}

}  // namespace vireo
