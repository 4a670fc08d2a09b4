// One way, messages of one size, as fast as they are taken. What counts is what arrives, after the
// first tenth of the time.
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "sockets.h"

namespace plain {
namespace {

constexpr size_t kReadBytes = 256 << 10;

void take(const Options& o) {
  const TickRate rate;
  const int listener = serving(o);
  int fd = -1;
  while (fd < 0 && g_stop == 0) fd = accept(listener, nullptr, nullptr);
  if (fd < 0) return;
  Reader reader(o.way, fd);
  std::vector<char> buffer(kReadBytes);
  const uint64_t warm_up = rate.of_seconds(o.seconds / 10);
  uint64_t first = 0, start = 0, last = 0, bytes = 0, all = 0, reads = 0;
  while (const size_t n = reader.some(buffer)) {
    const uint64_t now = ticks();
    all += n;
    ++reads;
    if (first == 0) first = now;
    if (now - first < warm_up) continue;
    if (start == 0) {
      start = now;
    } else {
      bytes += n;
      last = now;
    }
  }
  close(fd);
  const double seconds =
      std::max(1.0, static_cast<double>(last - start)) * rate.ns_per_tick() / 1e9;
  std::printf("{\"bytes\":%llu,\"all_bytes\":%llu,\"reads\":%llu,\"seconds\":%.6f}\n",
              static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(all),
              static_cast<unsigned long long>(reads), seconds);
}

void give(const Options& o) {
  const TickRate rate;
  const int fd = connected(o, o.no_delay);
  if (o.way == Way::kSpin) set_nonblocking(fd);
  const std::vector<char> message(o.size, 'v');
  // The clock is looked at every 4 KiB at most: for small messages it would cost as much as a send.
  const uint32_t at_once = std::max(1U, 4096 / o.size);
  uint64_t sent = 0;
  const uint64_t end = ticks() + rate.of_seconds(o.seconds);
  do {
    for (uint32_t i = 0; i < at_once; ++i) write_all(fd, message);
    sent += at_once;
  } while (ticks() < end);
  must(shutdown(fd, SHUT_WR), "shutdown");
  char byte;
  while (recv(fd, &byte, 1, 0) < 0 && (errno == EINTR || errno == EAGAIN)) {
  }
  close(fd);
  std::printf("{\"messages\":%llu,\"bytes\":%llu}\n", static_cast<unsigned long long>(sent),
              static_cast<unsigned long long>(sent * o.size));
}

}  // namespace

void stream(const Options& o) { o.is_server ? take(o) : give(o); }

}  // namespace plain
