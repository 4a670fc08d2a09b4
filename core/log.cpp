#include "core/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "core/assert.h"

namespace vireo {
namespace {

const char* level_name(LogLevel l) {
  switch (l) {
    case LogLevel::kNone:
      return "none";
    case LogLevel::kPanic:
      return "panic";
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarn:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDetails:
      return "details";
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kFine:
      return "fine";
    case LogLevel::kAll:
      return "all";
  }
  return "?";
}

}  // namespace

void LogSink::write(LogLevel l, std::string_view text) {
  const int saved = errno;
  fmt::memory_buffer line;
  fmt::format_to(std::back_inserter(line), "Vireo {}: {}\n", level_name(l), text);
  // The raw call: our own write() may be the interposed one.
  (void)!::syscall(SYS_write, fd.load(std::memory_order_relaxed), line.data(), line.size());
  errno = saved;
}

void assertion_failed(const char* what, const char* file, int line) noexcept {
  LogSink::write(LogLevel::kPanic, fmt::format("{}:{}: assertion failed: {}", file, line, what));
  std::abort();
}

}  // namespace vireo
