// Open-loop load: messages arrive by a Poisson process, whatever has become of those before them,
// with sizes drawn from a distribution; each is answered by its head once all of it has arrived.
// How long it took counts from when it was due, by classes of size. `rate` 0: one at a time, the
// unloaded baseline of the same sizes.
//
// A message goes on the connection with the fewest bytes unanswered, of `count`.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <random>
#include <vector>

#include "histogram.h"
#include "sockets.h"

namespace plain {
namespace {

struct Head {
  uint32_t bytes;  ///< of the message, this included
  uint32_t reserved;
  uint64_t due;  ///< ticks of the client
};
constexpr uint32_t kMin = sizeof(Head);
constexpr size_t kClasses = 32;  ///< class c: sizes from 2^c, below 2^(c+1)

/// A cumulative distribution of sizes, straight between its points.
class Sizes {
 public:
  explicit Sizes(const std::string& path) {
    std::ifstream file(path);
    double bytes = 0, probability = 0;
    while (file >> bytes >> probability) points_.push_back({bytes, probability});
    if (points_.size() < 2 || points_.back().probability < 1) {
      errno = EINVAL;
      fail("the file of sizes");
    }
  }
  uint32_t draw(double uniform) const {
    size_t i = 1;
    while (i + 1 < points_.size() && points_[i].probability < uniform) ++i;
    const auto [x0, p0] = points_[i - 1];
    const auto [x1, p1] = points_[i];
    const double share = p1 > p0 ? std::clamp((uniform - p0) / (p1 - p0), 0.0, 1.0) : 1.0;
    return std::max(kMin, static_cast<uint32_t>(std::lround(x0 + share * (x1 - x0))));
  }

 private:
  struct Point {
    double bytes, probability;
  };
  std::vector<Point> points_;
};

// ---- server

struct Incoming {
  std::array<char, sizeof(Head)> head;
  uint32_t have = 0;  ///< bytes of the message
};

/// Takes what is there; answers each message that is whole. @return false at the end.
bool take(int fd, Incoming& in, std::span<char> buffer) {
  const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  auto rest = std::span<const char>(buffer).first(static_cast<size_t>(n));
  while (!rest.empty()) {
    if (in.have < sizeof(Head)) {
      const size_t part = std::min(sizeof(Head) - in.have, rest.size());
      std::memcpy(in.head.data() + in.have, rest.data(), part);
      in.have += static_cast<uint32_t>(part);
      rest = rest.subspan(part);
      if (in.have < sizeof(Head)) break;
    }
    const uint32_t bytes = std::bit_cast<Head>(in.head).bytes;
    const size_t part = std::min<size_t>(bytes - in.have, rest.size());
    in.have += static_cast<uint32_t>(part);
    rest = rest.subspan(part);
    if (in.have < bytes) break;
    write_all(fd, in.head);
    in.have = 0;
  }
  return true;
}

void serve(const Options& o) {
  const int listener = serving(o);
  set_nonblocking(listener);
  const int epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  constexpr uint64_t kListener = ~uint64_t{0};
  watch(epoll, listener, EPOLLIN, kListener);
  struct Peer {
    int fd;
    Incoming in;
  };
  std::deque<Peer> peers;
  std::vector<char> buffer(256 << 10);
  std::array<epoll_event, 64> events;
  const int timeout = o.way == Way::kSpin ? 0 : -1;
  while (g_stop == 0) {
    const int n = wait_events(epoll, events, timeout);
    for (const epoll_event& e : std::span(events).first(static_cast<size_t>(n))) {
      if (e.data.u64 != kListener) {
        Peer& p = peers[e.data.u64];
        if (!take(p.fd, p.in, buffer)) close(p.fd);
        continue;
      }
      const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) continue;
      set_no_delay(fd);
      watch(epoll, fd, EPOLLIN, peers.size());
      peers.push_back({fd, {}});
    }
  }
  std::printf("{\"connections\":%zu}\n", peers.size());
}

// ---- client

struct Outgoing {
  int fd;
  std::deque<Head> waiting;  ///< not wholly sent; the first is being sent
  size_t sent = 0;           ///< of the first
  uint64_t unanswered = 0;   ///< bytes
  std::array<char, sizeof(Head)> reply;
  size_t replied = 0;
  bool watches_room = false;
};

class Load {
 public:
  explicit Load(const Options& o)
      : o_(o),
        sizes_(o.sizes),
        epoll_(must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
        body_(size_t{32} << 20, 'm'),
        took_(kClasses),
        random_(o.seed) {
    for (uint32_t i = 0; i < o.count; ++i) {
      const int fd = connected(o, true);
      set_nonblocking(fd);
      watch(epoll_, fd, EPOLLIN, i);
      outs_.push_back({.fd = fd, .waiting = {}, .reply = {}});
    }
  }

  void run() {
    const uint64_t begin = ticks();
    const uint64_t end = begin + rate_.of_seconds(o_.seconds);
    const uint64_t warm = begin + rate_.of_seconds(o_.seconds / 10);
    const uint64_t patience = end + rate_.of_seconds(5);
    uint64_t due = begin + gap();
    for (uint64_t now = begin; g_stop == 0; now = ticks()) {
      for (; due <= now && due < end && (o_.rate > 0 || pending_ == 0); due += gap()) {
        if (o_.rate == 0) due = now;
        begin_message({.bytes = sizes_.draw(uniform_(random_)), .reserved = 0, .due = due});
      }
      if (now >= end && (pending_ == 0 || now >= patience)) break;
      std::array<epoll_event, 64> events;
      const int n = wait_events(epoll_, events, 0);
      for (const epoll_event& e : std::span(events).first(static_cast<size_t>(n))) {
        Outgoing& out = outs_[e.data.u64];
        if ((e.events & EPOLLOUT) != 0) push(out);
        if ((e.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) pull(out, warm);
      }
    }
    print();
  }

 private:
  uint64_t gap() {
    if (o_.rate == 0) return 1;
    return rate_.of_seconds(-std::log1p(-uniform_(random_)) / o_.rate);
  }

  void begin_message(Head head) {
    auto out = std::min_element(outs_.begin(), outs_.end(), [](const auto& a, const auto& b) {
      return a.unanswered < b.unanswered;
    });
    out->unanswered += head.bytes;
    out->waiting.push_back(head);
    ++pending_;
    ++begun_;
    bytes_ += head.bytes;
    most_pending_ = std::max(most_pending_, pending_);
    if (out->waiting.size() == 1) push(*out);
  }

  void push(Outgoing& out) {
    while (!out.waiting.empty()) {
      const Head& head = out.waiting.front();
      // The head lies at the front of the body while it is being sent.
      std::memcpy(body_.data(), &head, sizeof head);
      const ssize_t n = send(out.fd, body_.data() + out.sent, head.bytes - out.sent, MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EINTR) fail("send");
      if (n > 0) out.sent += static_cast<size_t>(n);
      if (out.sent < head.bytes) break;
      out.waiting.pop_front();
      out.sent = 0;
    }
    if (out.watches_room == !out.waiting.empty()) return;
    out.watches_room = !out.watches_room;
    watch(epoll_, out.fd, out.watches_room ? EPOLLIN | EPOLLOUT : EPOLLIN,
          static_cast<uint64_t>(&out - outs_.data()), EPOLL_CTL_MOD);
  }

  void pull(Outgoing& out, uint64_t warm) {
    for (;;) {
      const ssize_t n = recv(out.fd, out.reply.data() + out.replied, sizeof(Head) - out.replied, 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n <= 0) fail("the server went away");
      out.replied += static_cast<size_t>(n);
      if (out.replied < sizeof(Head)) return;
      out.replied = 0;
      const auto head = std::bit_cast<Head>(out.reply);
      out.unanswered -= head.bytes;
      --pending_;
      if (head.due >= warm)
        took_[static_cast<size_t>(std::bit_width(head.bytes) - 1)].add(ticks() - head.due);
    }
  }

  void print() const {
    std::printf(
        "{\"begun\":%llu,\"unanswered\":%llu,\"most_pending\":%llu,\"bytes\":%llu,\"classes\":{",
        static_cast<unsigned long long>(begun_), static_cast<unsigned long long>(pending_),
        static_cast<unsigned long long>(most_pending_), static_cast<unsigned long long>(bytes_));
    const char* separator = "";
    for (size_t c = 0; c < kClasses; ++c) {
      if (took_[c].total() == 0) continue;
      std::printf("%s", separator);
      took_[c].print(std::to_string(uint64_t{1} << c).c_str(), rate_.ns_per_tick());
      separator = ",";
    }
    std::printf("}}\n");
  }

  const Options& o_;
  TickRate rate_;
  Sizes sizes_;
  int epoll_;
  std::vector<char> body_;
  std::vector<Histogram> took_;
  std::vector<Outgoing> outs_;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_{0, 1};
  uint64_t pending_ = 0, most_pending_ = 0, begun_ = 0, bytes_ = 0;
};

}  // namespace

void messages(const Options& o) {
  if (o.is_server) return serve(o);
  Load(o).run();
}

}  // namespace plain
