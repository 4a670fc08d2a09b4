#include "core/log.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/// The file of a descriptor.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const Identity&) const = default;
};

/// Standard error when the library was loaded.
const Identity g_first = [] {
  struct stat s;
  return ::fstat(STDERR_FILENO, &s) == 0 ? Identity{s.st_dev, s.st_ino} : Identity{};
}();

/// True if standard error is still for messages. Daemons give its number to a connection (inetd),
/// or close it, and the next opened file gets it. A terminal, /dev/null and a file in append mode
/// are accepted like the original one.
bool may_write_to_stderr() {
  struct stat s;
  if (::fstat(STDERR_FILENO, &s) != 0) return false;
  if (S_ISCHR(s.st_mode)) return true;
  if (S_ISREG(s.st_mode) && (::syscall(SYS_fcntl, STDERR_FILENO, F_GETFL) & O_APPEND) != 0)
    return true;
  if (S_ISSOCK(s.st_mode)) {  // the journal's is a local socket
    int domain = 0;
    socklen_t n = sizeof domain;
    if (::syscall(SYS_getsockopt, STDERR_FILENO, SOL_SOCKET, SO_DOMAIN, &domain, &n) != 0 ||
        domain != AF_UNIX)
      return false;
  }
  return g_first == Identity{s.st_dev, s.st_ino};
}

}  // namespace

void LogSink::write(LogLevel l, std::string_view text) {
  const int saved = errno;
  const int to = fd.load(std::memory_order_relaxed);
  if (to == STDERR_FILENO && !may_write_to_stderr()) {
    errno = saved;
    return;
  }
  fmt::memory_buffer line;
  fmt::format_to(std::back_inserter(line), "Vireo {}: {}\n", level_name(l), text);
  // A raw system call: write() may be the interposed one.
  (void)!::syscall(SYS_write, to, line.data(), line.size());
  errno = saved;
}

void assertion_failed(const char* what, const char* file, int line) noexcept {
  LogSink::write(LogLevel::kPanic, fmt::format("{}:{}: assertion failed: {}", file, line, what));
  std::abort();
}

}  // namespace vireo
