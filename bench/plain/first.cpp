// How soon after exec the first byte has come back, and what a process with `count` connections
// holds in memory. `plain exec` (main.cpp) leaves the time of the exec in PLAIN_EXEC_NS.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "echo.h"

namespace plain {
namespace {

/// Of /proc/self/status.
unsigned long long kib(const std::string& wanted) {
  std::ifstream file("/proc/self/status");
  std::string name, rest;
  unsigned long long value = 0;
  while (file >> name) {
    if (name == wanted) {
      file >> value;
      return value;
    }
    std::getline(file, rest);
  }
  return 0;
}

}  // namespace

void first(const Options& o) {
  if (o.is_server) return serve_echo(o);
  const uint64_t in_main = monotonic_ns();
  const char* const text = std::getenv("PLAIN_EXEC_NS");
  const uint64_t exec = text == nullptr ? in_main : std::strtoull(text, nullptr, 10);
  std::vector<int> fds;
  uint64_t back = 0;
  for (uint32_t i = 0; i < o.count; ++i) {
    fds.push_back(connected(o, true));
    char byte = '1';
    write_all(fds.back(), {&byte, 1});
    if (recv(fds.back(), &byte, 1, 0) != 1) fail("the first byte");
    if (i == 0) back = monotonic_ns();
  }
  std::printf(
      "{\"first_byte_ms\":%.4f,\"main_ms\":%.4f,\"connections\":%zu,\"resident_KiB\":%llu,"
      "\"huge_KiB\":%llu}\n",
      static_cast<double>(back - exec) / 1e6, static_cast<double>(in_main - exec) / 1e6, fds.size(),
      kib("VmRSS:"), kib("HugetlbPages:"));
  for (const int fd : fds) close(fd);
}

}  // namespace plain
