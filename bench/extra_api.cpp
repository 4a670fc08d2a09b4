// The extra API's ways to receive datagrams, as programs use them that were written for it: what
// bench/run compares with the bare device. Knows vireo_extra.h and plain sockets, nothing else.
//
//   extra_api round_trip server|client ADDRESS PORT WAY [--seconds S]
//   extra_api datagrams  server        ADDRESS PORT WAY [--seconds S]    bench/plain sends
//
// WAY: callback (the answer is sent from within it), zcopy, socketxtreme. Prints one line of JSON
// at its end, as bench/plain does; servers end by SIGTERM.
#include <arpa/inet.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

#include "bench/plain/clock.h"
#include "bench/plain/histogram.h"
#include "stack/extra/include/vireo_extra.h"

namespace {

using plain::ticks;

volatile std::sig_atomic_t g_stop = 0;
vma_api_t* g_api;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "extra_api: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}
int must(int result, const char* what) {
  if (result < 0) fail(what);
  return result;
}

/// What becomes of a datagram. Called for each, with where it came from.
struct Taker {
  virtual void take(std::span<const char> bytes, const sockaddr_in& from) = 0;

 protected:
  ~Taker() = default;
};

/// Receives datagrams. Waits for one, if its way is to wait; returns at the latest after
/// kPatienceMs, when nothing comes, or at a signal.
struct Receiver {
  virtual void receive() = 0;
  virtual ~Receiver() = default;
};
constexpr int kPatienceMs = 200;

void set_patience(int fd) {
  const timeval time{0, kPatienceMs * 1000};
  must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), "SO_RCVTIMEO");
}
bool is_late() { return errno == EAGAIN || errno == EINTR; }

/// Blocks in recv(2). `is_one_at_a_time`: the callback has it return after each datagram; else all
/// are dropped, and it does not return.
class ByCallback final : public Receiver {
 public:
  ByCallback(int fd, Taker& taker, bool is_one_at_a_time)
      : fd_(fd), taker_(taker), verdict_(is_one_at_a_time ? VMA_PACKET_RECV : VMA_PACKET_DROP) {
    must(g_api->register_recv_callback(fd, show, this), "register_recv_callback");
  }
  void receive() override {
    char first;
    if (recv(fd_, &first, 1, 0) < 0 && !is_late()) fail("recv");
  }

 private:
  static vma_recv_callback_retval_t show(int, size_t, iovec pieces[], vma_info_t* info,
                                         void* context) {
    auto& self = *static_cast<ByCallback*>(context);
    self.taker_.take({static_cast<const char*>(pieces[0].iov_base), pieces[0].iov_len}, *info->src);
    return self.verdict_;
  }
  int fd_;
  Taker& taker_;
  vma_recv_callback_retval_t verdict_;
};

/// Blocks in recvfrom_zcopy().
class ByZeroCopy final : public Receiver {
 public:
  ByZeroCopy(int fd, Taker& taker) : fd_(fd), taker_(taker) {}
  void receive() override {
    alignas(16) char room[256];
    int flags = 0;
    sockaddr_in from{};
    socklen_t size = sizeof from;
    const int n = g_api->recvfrom_zcopy(fd_, room, sizeof room, &flags,
                                        reinterpret_cast<sockaddr*>(&from), &size);
    if (n < 0) {
      if (!is_late()) fail("recvfrom_zcopy");
      return;
    }
    if ((flags & MSG_VMA_ZCOPY) == 0) {
      taker_.take({room, static_cast<size_t>(n)}, from);
      return;
    }
    auto* const all = reinterpret_cast<vma_packets_t*>(room);
    const iovec& piece = all->pkts[0].iov[0];
    taker_.take({static_cast<const char*>(piece.iov_base), piece.iov_len}, from);
    must(g_api->free_packets(fd_, all->pkts, 1), "free_packets");
  }

 private:
  int fd_;
  Taker& taker_;
};

/// Polls the ring again and again: socketxtreme_poll() never waits.
class ByCompletions final : public Receiver {
 public:
  ByCompletions(int fd, Taker& taker) : taker_(taker) {
    must(g_api->get_socket_rings_fds(fd, &ring_, 1), "get_socket_rings_fds");
  }
  void receive() override {
    vma_completion_t all[16];
    const int n =
        must(g_api->socketxtreme_poll(ring_, all, std::size(all), 0), "socketxtreme_poll");
    for (vma_completion_t& c : std::span(all, static_cast<size_t>(n))) {
      if ((c.events & VMA_SOCKETXTREME_PACKET) == 0) continue;
      taker_.take({static_cast<const char*>(c.packet.buff_lst->payload), c.packet.total_len},
                  c.src);
      must(g_api->socketxtreme_free_vma_packets(&c.packet, 1), "socketxtreme_free_vma_packets");
    }
  }

 private:
  int ring_ = -1;
  Taker& taker_;
};

Receiver* receiver(std::string_view way, int fd, Taker& taker, bool is_one_at_a_time) {
  set_patience(fd);
  if (way == "callback") return new ByCallback(fd, taker, is_one_at_a_time);
  if (way == "zcopy") return new ByZeroCopy(fd, taker);
  if (way == "socketxtreme") return new ByCompletions(fd, taker);
  errno = EINVAL;
  fail("the way");
}

void send_one(int fd, std::span<const char> bytes) {
  if (send(fd, bytes.data(), bytes.size(), 0) < 0) fail("send");
}

/// Answers each datagram with itself; connects to whom the first is from.
struct Echo final : Taker {
  explicit Echo(int socket) : fd(socket) {}
  void take(std::span<const char> bytes, const sockaddr_in& from) override {
    if (answered++ == 0)
      must(connect(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from), "connect");
    send_one(fd, bytes);
  }
  int fd;
  uint64_t answered = 0;
};

struct Expected final : Taker {
  void take(std::span<const char> bytes, const sockaddr_in&) override {
    is_there |= !bytes.empty() && bytes[0] == wanted;
  }
  char wanted = 0;
  bool is_there = false;
};

/// The rate, after the first tenth of the time.
struct Count final : Taker {
  explicit Count(uint64_t ticks_to_warm) : warm_up(ticks_to_warm) {}
  void take(std::span<const char>, const sockaddr_in&) override {
    const uint64_t now = ticks();
    if (all++ == 0) first = now;
    if (now - first < warm_up) return;
    if (start == 0) {
      start = now;
      return;
    }
    ++counted;
    last = now;
  }
  const uint64_t warm_up;
  uint64_t all = 0, counted = 0, first = 0, start = 0, last = 0;
};

void answer(std::string_view way, int fd) {
  Echo echo(fd);
  Receiver& in = *receiver(way, fd, echo, false);
  while (g_stop == 0) in.receive();
  std::printf("{\"answered\":%llu}\n", static_cast<unsigned long long>(echo.answered));
}

void ask(std::string_view way, int fd, double seconds) {
  const plain::TickRate rate;
  Expected expected;
  Receiver& in = *receiver(way, fd, expected, true);
  plain::Histogram took;
  uint64_t lost = 0;
  const uint64_t begin = ticks(), warm = begin + rate.of_seconds(seconds / 10),
                 end = begin + rate.of_seconds(seconds),
                 patience = rate.of_seconds(kPatienceMs / 1e3);
  uint64_t now = begin;
  while (now < end && g_stop == 0) {
    ++expected.wanted;
    expected.is_there = false;
    const uint64_t start = ticks();
    send_one(fd, {&expected.wanted, 1});
    do {
      in.receive();
      now = ticks();
    } while (!expected.is_there && now - start < patience);
    if (!expected.is_there)
      ++lost;
    else if (start >= warm)
      took.add(now - start);
  }
  std::printf("{\"messages\":%llu,\"lost\":%llu,", static_cast<unsigned long long>(took.total()),
              static_cast<unsigned long long>(lost));
  took.print("round_trip", rate.ns_per_tick());
  std::printf("}\n");
}

void count(std::string_view way, int fd, double seconds) {
  const plain::TickRate rate;
  Count count(rate.of_seconds(seconds / 10));
  Receiver& in = *receiver(way, fd, count, false);
  while (g_stop == 0) in.receive();
  std::printf(
      "{\"datagrams\":%llu,\"seconds\":%.6f,\"received\":%llu}\n",
      static_cast<unsigned long long>(count.counted),
      std::max(1.0, static_cast<double>(count.last - count.start)) * rate.ns_per_tick() / 1e9,
      static_cast<unsigned long long>(count.all));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 && argc != 8) {
    std::fprintf(stderr,
                 "usage: extra_api round_trip|datagrams server|client ADDRESS PORT "
                 "callback|zcopy|socketxtreme [--seconds S]\n");
    return 2;
  }
  const std::string_view name = argv[1], way = argv[5];
  const bool is_server = std::string_view(argv[2]) == "server";
  const double seconds = argc == 8 ? std::atof(argv[7]) : 1;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[4])));
  if (inet_pton(AF_INET, argv[3], &at.sin_addr) != 1) fail("the address");
  struct sigaction action{};
  action.sa_handler = [](int) { g_stop = 1; };
  sigaction(SIGTERM, &action, nullptr);
  g_api = vma_get_api();
  if (g_api == nullptr) fail("the extra API is not there");
  const int fd = must(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
  const auto* const address = reinterpret_cast<const sockaddr*>(&at);
  if (is_server)
    must(bind(fd, address, sizeof at), "bind");
  else
    must(connect(fd, address, sizeof at), "connect");
  if (name == "datagrams")
    count(way, fd, seconds);
  else if (is_server)
    answer(way, fd);
  else
    ask(way, fd, seconds);
  return 0;
}
