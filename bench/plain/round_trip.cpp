// One message there and one back, one at a time; both sides wait in the same way.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "histogram.h"
#include "sockets.h"

namespace plain {
namespace {

constexpr int kLateMs = 200;  ///< a datagram that took so long is lost

/// @return false at the end of the stream, or when told to stop.
bool whole(Reader& reader, std::span<char> message) {
  while (!message.empty()) {
    const size_t n = reader.some(message);
    if (n == 0) return false;
    message = message.subspan(n);
  }
  return true;
}

void serve_stream(const Options& o) {
  const int listener = serving(o);
  std::vector<char> message(o.size);
  uint64_t answered = 0;
  while (g_stop == 0) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) continue;
    set_no_delay(fd);
    {
      Reader reader(o.way, fd);
      for (; whole(reader, message); ++answered) write_all(fd, message);
    }
    close(fd);
  }
  std::printf("{\"answered\":%llu}\n", static_cast<unsigned long long>(answered));
}

void serve_datagrams(const Options& o) {
  const int fd = serving(o);
  if (o.way == Way::kSpin) set_nonblocking(fd);
  std::vector<char> message(2048);
  Reader reader(o.way, fd);
  uint64_t answered = 0;
  // The first tells who asks; a connected socket can then be read in every way.
  sockaddr_in from{};
  socklen_t size = sizeof from;
  ssize_t n = -1;
  while (n < 0 && g_stop == 0)
    n = recvfrom(fd, message.data(), message.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
  if (n >= 0) must(connect(fd, reinterpret_cast<sockaddr*>(&from), size), "connect");
  for (; g_stop == 0 && n > 0; ++answered) {
    send(fd, message.data(), static_cast<size_t>(n), 0);
    n = static_cast<ssize_t>(reader.some(message));
  }
  std::printf("{\"answered\":%llu}\n", static_cast<unsigned long long>(answered));
}

void ask(const Options& o) {
  const TickRate rate;
  const int fd = connected(o, true);
  Reader reader(o.way, fd, o.tcp ? -1 : kLateMs);
  std::vector<char> request(o.size), reply(o.size);
  Histogram took;
  uint64_t lost = 0;
  const uint64_t begin = ticks();
  const uint64_t warm = begin + rate.of_seconds(o.seconds / 10);
  const uint64_t end = begin + rate.of_seconds(o.seconds);
  uint64_t now = begin;
  for (uint8_t number = 0; now < end; ++number) {
    request[0] = static_cast<char>(number);
    const uint64_t start = ticks();
    write_all(fd, request);
    bool is_there = whole(reader, reply);
    // A reply that comes after its time is not the next one's.
    while (is_there && !o.tcp && reply[0] != request[0]) is_there = whole(reader, reply);
    now = ticks();
    if (!is_there) {
      if (o.tcp || !reader.is_late()) fail("the server went away");
      ++lost;
      continue;
    }
    if (reply[0] != request[0]) fail("another reply than was asked for");
    if (start >= warm) took.add(now - start);
  }
  close(fd);
  std::printf("{\"messages\":%llu,\"lost\":%llu,", static_cast<unsigned long long>(took.total()),
              static_cast<unsigned long long>(lost));
  took.print("round_trip", rate.ns_per_tick());
  std::printf("}\n");
}

}  // namespace

void round_trip(const Options& o) {
  if (!o.is_server) return ask(o);
  o.tcp ? serve_stream(o) : serve_datagrams(o);
}

}  // namespace plain
