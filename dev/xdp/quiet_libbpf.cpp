#include "dev/xdp/quiet_libbpf.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string_view>

#include "core/log.h"

namespace vireo::xdp {
namespace {

int log_libbpf(libbpf_print_level, const char* format, va_list args) {
  if (!log_enabled(LogLevel::kDebug)) return 0;
  char line[512];
  const int n = vsnprintf(line, sizeof line, format, args);
  std::string_view text(line,
                        static_cast<size_t>(std::clamp(n, 0, static_cast<int>(sizeof line) - 1)));
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  log<LogLevel::kDebug>("{}", text);
  return n;
}

}  // namespace

QuietLibbpf::QuietLibbpf() : print_(libbpf_set_print(log_libbpf)) {
  getrlimit(RLIMIT_MEMLOCK, &memlock_);
}

QuietLibbpf::~QuietLibbpf() {
  libbpf_set_print(print_);
  rlimit now;
  if (getrlimit(RLIMIT_MEMLOCK, &now) == 0 && now.rlim_cur != memlock_.rlim_cur)
    setrlimit(RLIMIT_MEMLOCK, &memlock_);
}

}  // namespace vireo::xdp
