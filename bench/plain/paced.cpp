// What a rate costs: one message there and back every 1/rate seconds by blocking calls, and the
// processor time both sides used for it. `rate` 0: both wait for the whole time for a message that
// comes at its end.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "histogram.h"
#include "sockets.h"

namespace plain {
namespace {

double cpu_seconds() {
  rusage u{};
  must(getrusage(RUSAGE_SELF, &u), "getrusage");
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

/// Processor time since it was made.
struct Meter {
  double cpu = cpu_seconds();
  uint64_t ns = monotonic_ns();
  double share() const {
    return (cpu_seconds() - cpu) * 1e9 / static_cast<double>(monotonic_ns() - ns);
  }
};

void serve(const Options& o) {
  const int listener = serving(o);
  int fd = -1;
  while (fd < 0 && g_stop == 0) fd = accept(listener, nullptr, nullptr);
  if (fd < 0) return;
  set_no_delay(fd);
  Reader reader(o.way, fd);
  char byte;
  if (reader.some({&byte, 1}) != 1) return;
  const Meter meter;
  write_all(fd, {&byte, 1});
  uint64_t answered = 0;
  double share = 0;
  while (reader.some({&byte, 1}) == 1) {
    share = meter.share();
    write_all(fd, {&byte, 1});
    ++answered;
  }
  close(fd);
  std::printf("{\"answered\":%llu,\"cpu\":%.6f}\n", static_cast<unsigned long long>(answered),
              share);
}

void ask(const Options& o) {
  const TickRate rate;
  const int fd = connected(o, true);
  Reader reader(o.way, fd);
  char byte = 'p';
  const auto exchange = [&] {
    write_all(fd, {&byte, 1});
    if (reader.some({&byte, 1}) != 1) fail("the answer");
  };
  exchange();
  const Meter meter;
  Histogram took;
  if (o.rate == 0) {
    Reader(o.way, fd, static_cast<int>(o.seconds * 1000)).some({&byte, 1});
    const uint64_t start = ticks();
    exchange();
    took.add(ticks() - start);
  } else {
    const auto step = static_cast<uint64_t>(1e9 / o.rate);
    const uint64_t end = monotonic_ns() + static_cast<uint64_t>(o.seconds * 1e9);
    for (uint64_t due = monotonic_ns() + step; due < end && g_stop == 0; due += step) {
      const timespec at{static_cast<time_t>(due / 1'000'000'000),
                        static_cast<long>(due % 1'000'000'000)};
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
      const uint64_t start = ticks();
      exchange();
      took.add(ticks() - start);
    }
  }
  const double share = meter.share();
  close(fd);
  std::printf("{\"cpu\":%.6f,\"messages\":%llu,", share,
              static_cast<unsigned long long>(took.total()));
  took.print("round_trip", rate.ns_per_tick());
  std::printf("}\n");
}

}  // namespace

void paced(const Options& o) { o.is_server ? serve(o) : ask(o); }

}  // namespace plain
