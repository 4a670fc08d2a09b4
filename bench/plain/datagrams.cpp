// Datagrams one way, as fast as they are taken, singly or by sendmmsg and recvmmsg. A datagram sent
// is not yet one received: both sides count, and the receiver's count is the rate.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "sockets.h"

namespace plain {
namespace {

/// `count` buffers of `bytes`, laid out for the mmsg calls.
struct Batch {
  Batch(size_t count, size_t bytes) : memory(count * bytes, 'v'), parts(count), heads(count) {
    for (size_t i = 0; i < count; ++i) {
      parts[i] = {memory.data() + i * bytes, bytes};
      heads[i].msg_hdr.msg_iov = &parts[i];
      heads[i].msg_hdr.msg_iovlen = 1;
    }
  }
  std::vector<char> memory;
  std::vector<iovec> parts;
  std::vector<mmsghdr> heads;
};

void take(const Options& o) {
  const TickRate rate;
  const int fd = serving(o);
  Batch batch(o.batch, 2048);
  if (o.way == Way::kSpin) set_nonblocking(fd);
  const uint64_t warm_up = rate.of_seconds(o.seconds / 10);
  uint64_t first = 0, start = 0, last = 0, counted = 0, all = 0;
  while (g_stop == 0) {
    const auto n = o.batch > 1 ? static_cast<ssize_t>(recvmmsg(fd, batch.heads.data(), o.batch,
                                                               MSG_WAITFORONE, nullptr))
                               : recv(fd, batch.memory.data(), 2048, 0);
    if (n < 0) {
      if (errno != EINTR && errno != EAGAIN) fail("recv");
      continue;
    }
    const uint64_t came = o.batch > 1 ? static_cast<uint64_t>(n) : 1;
    const uint64_t now = ticks();
    all += came;
    if (first == 0) first = now;
    if (now - first < warm_up) continue;
    if (start == 0) {
      start = now;
    } else {
      counted += came;
      last = now;
    }
  }
  // What waits has arrived, though it came too late for the rate.
  while (recv(fd, batch.memory.data(), 2048, MSG_DONTWAIT) >= 0) ++all;
  const double seconds =
      std::max(1.0, static_cast<double>(last - start)) * rate.ns_per_tick() / 1e9;
  std::printf("{\"datagrams\":%llu,\"seconds\":%.6f,\"received\":%llu}\n",
              static_cast<unsigned long long>(counted), seconds,
              static_cast<unsigned long long>(all));
}

void give(const Options& o) {
  const TickRate rate;
  const int fd = connected(o, false);
  Batch batch(o.batch, o.size);
  uint64_t sent = 0, refused = 0;
  const uint64_t begin = ticks();
  const uint64_t end = begin + rate.of_seconds(o.seconds);
  uint64_t now = begin;
  while (now < end) {
    for (int i = 0; i < 64; i += static_cast<int>(o.batch)) {
      const ssize_t n = o.batch > 1 ? sendmmsg(fd, batch.heads.data(), o.batch, 0)
                                    : send(fd, batch.memory.data(), o.size, 0);
      if (n < 0 && errno != ENOBUFS && errno != ECONNREFUSED && errno != EINTR) fail("send");
      if (n < 0)
        ++refused;
      else
        sent += o.batch > 1 ? static_cast<uint64_t>(n) : 1;
    }
    now = ticks();
  }
  const double seconds = static_cast<double>(now - begin) * rate.ns_per_tick() / 1e9;
  usleep(20'000);  // what is in flight may arrive
  close(fd);
  std::printf("{\"sent\":%llu,\"refused\":%llu,\"seconds\":%.6f}\n",
              static_cast<unsigned long long>(sent), static_cast<unsigned long long>(refused),
              seconds);
}

}  // namespace

void datagrams(const Options& o) { o.is_server ? take(o) : give(o); }

}  // namespace plain
