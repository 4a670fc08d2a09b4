// vireo-stat: lists the processes that use Vireo and their sockets, and why some are not carried.
// See vireo-stat(1).
#include <fmt/format.h>
#include <getopt.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "core/stats_json.h"
#include "tools/vireo-stat/scan.h"
#include "tools/vireo-stat/view.h"

namespace vireo {
namespace {

constexpr const char* kUsage = R"(Usage: vireo-stat [options]
Lists the processes that use Vireo, the sockets that it carries, and why others are the kernel's.

  -p, --pid PID         this process only
  -i, --interval SEC    again every SEC seconds (0.1 and up), with rates, until interrupted
  -c, --count N         with --interval: N times
  -r, --reasons         the reasons for leaving sockets to the kernel, counted over all processes
  -v, --verbose         also the engine's counters and closed sockets
  -j, --json            JSON; with --interval one document a line, totals and not rates
  -h, --help            this text

Exit status: 0 if a process was found, 1 if none was, 2 for wrong options.
)";

struct Options {
  std::optional<int> pid;
  double interval_s = 0;
  long count = 0;  ///< 0: unlimited
  bool reasons = false;
  bool json = false;
  ViewOptions view;
};

[[noreturn]] void refuse(const std::string& why) {
  fmt::print(stderr, "vireo-stat: {}\n{}", why, kUsage);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  constexpr option kLong[] = {
      {"pid", required_argument, nullptr, 'p'},   {"interval", required_argument, nullptr, 'i'},
      {"count", required_argument, nullptr, 'c'}, {"reasons", no_argument, nullptr, 'r'},
      {"verbose", no_argument, nullptr, 'v'},     {"json", no_argument, nullptr, 'j'},
      {"help", no_argument, nullptr, 'h'},        {}};
  Options o;
  const auto positive = [](const char* name, double least) {
    char* end = nullptr;
    const double n = std::strtod(optarg, &end);
    if (end == optarg || *end != '\0' || !(n >= least) || n > 1e9)
      refuse(fmt::format("--{}: {} is not a number from {}", name, optarg, least));
    return n;
  };
  for (int c; (c = ::getopt_long(argc, argv, "p:i:c:rvjh", kLong, nullptr)) != -1;) switch (c) {
      case 'p':
        o.pid = static_cast<int>(positive("pid", 1));
        break;
      case 'i':
        o.interval_s = positive("interval", 0.1);
        break;
      case 'c':
        o.count = static_cast<long>(positive("count", 1));
        break;
      case 'r':
        o.reasons = true;
        break;
      case 'v':
        o.view.verbose = true;
        break;
      case 'j':
        o.json = true;
        break;
      case 'h':
        fmt::print("{}", kUsage);
        std::exit(0);
      default:
        refuse("wrong option");
    }
  if (optind != argc) refuse(fmt::format("{}: no such argument", argv[optind]));
  if (o.interval_s == 0) o.count = 1;
  return o;
}

Instant monotonic_now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec);
}

void print_text(const Scan& scan, const std::map<int, ProcessReading>& before, Duration since,
                const Options& o) {
  if (o.reasons) {
    if (!scan.processes.empty()) fmt::print("{}", reasons_view(scan.processes));
    return;
  }
  const char* gap = "";
  for (const ProcessReading& p : scan.processes) {
    const auto old = before.find(p.pid);
    fmt::print("{}{}", gap,
               process_view(p, old == before.end() ? nullptr : &old->second, since, o.view));
    gap = "\n";
  }
}

int run(const Options& o) {
  std::map<int, ProcessReading> before;
  Instant looked = monotonic_now();
  bool found = false;
  bool told = false;
  for (long i = 0; o.count == 0 || i < o.count; ++i) {
    if (i > 0) {
      const auto ns = static_cast<int64_t>(o.interval_s * 1e9);
      const timespec wait{ns / 1'000'000'000, ns % 1'000'000'000};
      ::nanosleep(&wait, nullptr);
    }
    const Instant now = monotonic_now();
    const Scan scan = scan_processes(o.pid);
    found = !scan.processes.empty();
    if (o.json)
      fmt::print("{}\n", processes_json(scan.processes));
    else
      print_text(scan, before, now - looked, o);
    if (o.interval_s > 0 && !o.json) fmt::print("\n");
    if (std::fflush(stdout) != 0) return 2;  // the reader of the pipe is gone
    for (const std::string& line : scan.unread) fmt::print(stderr, "vireo-stat: {}\n", line);
    if (!found && !o.json && i == 0) fmt::print(stderr, "vireo-stat: no process uses Vireo\n");
    if (scan.forbidden != 0 && !std::exchange(told, true))
      fmt::print(stderr, "vireo-stat: {} process{} of other users not looked at: that takes root\n",
                 scan.forbidden, scan.forbidden == 1 ? "" : "es");
    before.clear();
    for (const ProcessReading& p : scan.processes) before.emplace(p.pid, p);
    looked = now;
  }
  return found ? 0 : 1;
}

}  // namespace
}  // namespace vireo

int main(int argc, char** argv) { return vireo::run(vireo::parse(argc, argv)); }
