// Byte-exact transfers: N connections, M bytes each way at once, every byte compared with a stream
// made from a seed.
//
//   transfer server ADDRESS PORT CONNECTIONS BYTES [poll|threads] [both|up|down]
//   transfer client ADDRESS PORT CONNECTIONS BYTES [poll|threads] [both|up|down]
//
// poll: one thread, epoll, non-blocking sockets. threads: a sending and a receiving thread for each
// connection, blocking calls on a shared socket. up is client to server. The client tells each
// connection's number in its first 8 bytes; a side shuts down when it has sent all, and the other
// must then see the end exactly there. Calls and sizes vary by seed: read, recv, readv, recvmsg;
// write, send, writev, sendmsg; from 1 byte to 128 KiB. Ends with one line of JSON; a wrong,
// missing or surplus byte ends the program with status 1 and says where.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "endpoint.h"

namespace {

using endpoint::fail;
using endpoint::must;

constexpr size_t kChunkMax = 128 << 10;

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// The stream of one direction of one connection: any part can be made without the parts before it.
class Stream {
 public:
  explicit Stream(uint64_t seed) : seed_(mix(seed)) {}

  void fill(uint64_t offset, std::span<unsigned char> out) const {
    size_t at = 0;
    while (at < out.size()) {
      const uint64_t word = mix(seed_ ^ (offset / 8));
      const size_t skip = offset % 8;
      const size_t n = std::min(out.size() - at, 8 - skip);
      std::memcpy(out.data() + at, reinterpret_cast<const unsigned char*>(&word) + skip, n);
      at += n;
      offset += n;
    }
  }

 private:
  uint64_t seed_;
};

struct Plan {
  bool is_server = false;
  unsigned connections = 0;
  uint64_t bytes_up = 0, bytes_down = 0;
};

/// One direction's variety of calls and sizes.
class Variety {
 public:
  explicit Variety(uint64_t seed) : state_(seed) {}
  uint64_t next() { return state_ = mix(state_); }
  /// Mostly large, often odd, sometimes tiny.
  size_t size() {
    const uint64_t r = next();
    switch (r % 8) {
      case 0:
        return 1 + (r >> 8) % 64;
      case 1:
        return 1 + (r >> 8) % 1500;
      case 2:
        return kChunkMax;
      default:
        return 1 + (r >> 8) % kChunkMax;
    }
  }

 private:
  uint64_t state_;
};

ssize_t receive(int fd, std::span<unsigned char> to, uint64_t way) {
  iovec parts[2] = {{to.data(), to.size() / 3},
                    {to.data() + to.size() / 3, to.size() - to.size() / 3}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  switch (way % 4) {
    case 0:
      return read(fd, to.data(), to.size());
    case 1:
      return recv(fd, to.data(), to.size(), 0);
    case 2:
      return readv(fd, parts, 2);
    default:
      return recvmsg(fd, &message, 0);
  }
}

ssize_t transmit(int fd, std::span<unsigned char> from, uint64_t way) {
  iovec parts[2] = {{from.data(), from.size() / 3},
                    {from.data() + from.size() / 3, from.size() - from.size() / 3}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  switch (way % 4) {
    case 0:
      return write(fd, from.data(), from.size());
    case 1:
      return send(fd, from.data(), from.size(), MSG_NOSIGNAL);
    case 2:
      return writev(fd, parts, 2);
    default:
      return sendmsg(fd, &message, MSG_NOSIGNAL);
  }
}

/// What one side sends on one connection.
class Sender {
 public:
  Sender(int fd, uint64_t connection, bool is_server, uint64_t bytes)
      : fd_(fd),
        connection_(connection),
        has_number_(!is_server),
        bytes_(bytes),
        stream_(connection * 2 + is_server),
        variety_(connection * 2 + is_server + 1000),
        buffer_(kChunkMax) {}

  /// The connection's number goes first, client to server. @return false if the socket would block.
  bool send_number() {
    while (number_sent_ < (has_number_ ? 8 : 0)) {
      const ssize_t n = send(fd_, reinterpret_cast<const char*>(&connection_) + number_sent_,
                             8 - static_cast<size_t>(number_sent_), MSG_NOSIGNAL);
      if (n < 0) return blocked("send");
      number_sent_ += static_cast<int>(n);
    }
    return true;
  }

  /// Sends until all is sent or the socket would block. @return whether all is sent.
  bool step(bool once) {
    if (!send_number()) return false;
    while (sent_ < bytes_) {
      const std::span<unsigned char> chunk{buffer_.data(),
                                           std::min<uint64_t>(variety_.size(), bytes_ - sent_)};
      stream_.fill(sent_, chunk);
      const ssize_t n = transmit(fd_, chunk, variety_.next());
      if (n < 0) return blocked("send");
      sent_ += static_cast<uint64_t>(n);
      if (once) return false;
    }
    if (!shut_) must(shutdown(fd_, SHUT_WR), "shutdown");
    shut_ = true;
    return true;
  }
  uint64_t sent() const { return sent_; }

 private:
  bool blocked(const char* what) {
    if (errno != EAGAIN && errno != EINTR) {
      flockfile(stderr);  // for good: who speaks first ends the process
      std::fprintf(stderr, "connection %llu, after %llu bytes sent: ",
                   static_cast<unsigned long long>(connection_),
                   static_cast<unsigned long long>(sent_));
      fail(what);
    }
    return false;
  }
  int fd_;
  uint64_t connection_;
  bool has_number_;
  bool shut_ = false;
  int number_sent_ = 0;
  uint64_t bytes_;
  uint64_t sent_ = 0;
  Stream stream_;
  Variety variety_;
  std::vector<unsigned char> buffer_;
};

/// What one side must receive on one connection.
class Receiver {
 public:
  Receiver(int fd, uint64_t connection, bool is_server, uint64_t bytes)
      : fd_(fd),
        connection_(connection),
        bytes_(bytes),
        stream_(connection * 2 + !is_server),
        variety_(connection * 2 + is_server + 2000),
        buffer_(kChunkMax),
        wanted_(kChunkMax) {}

  /// Receives until the end or the socket would block. @return whether the end came, in its place.
  bool step(bool once) {
    for (;;) {
      const std::span<unsigned char> room{buffer_.data(), variety_.size()};
      const ssize_t n = receive(fd_, room, variety_.next());
      if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) return false;
        say_where();
        fail("receive");
      }
      if (n == 0) {
        if (received_ != bytes_) {
          say_where();
          std::fprintf(stderr, "the stream ended, %llu bytes were due\n",
                       static_cast<unsigned long long>(bytes_));
          std::exit(1);
        }
        return true;
      }
      check({buffer_.data(), static_cast<size_t>(n)});
      if (once) return false;
    }
  }
  uint64_t received() const { return received_; }

 private:
  void check(std::span<const unsigned char> got) {
    stream_.fill(received_, {wanted_.data(), got.size()});
    if (received_ + got.size() > bytes_) {
      say_where();
      std::fprintf(stderr, "%zu more bytes than due\n",
                   static_cast<size_t>(received_ + got.size() - bytes_));
      std::exit(1);
    }
    const auto [a, b] = std::mismatch(got.begin(), got.end(), wanted_.begin());
    if (a != got.end()) {
      received_ += static_cast<uint64_t>(a - got.begin());
      say_where();
      std::fprintf(stderr, "byte is 0x%02x, not 0x%02x\n", *a, *b);
      std::exit(1);
    }
    received_ += got.size();
  }
  void say_where() const {
    flockfile(stderr);
    std::fprintf(stderr,
                 "connection %llu, offset %llu: ", static_cast<unsigned long long>(connection_),
                 static_cast<unsigned long long>(received_));
  }
  int fd_;
  uint64_t connection_;
  uint64_t bytes_;
  uint64_t received_ = 0;
  Stream stream_;
  Variety variety_;
  std::vector<unsigned char> buffer_;
  std::vector<unsigned char> wanted_;
};

struct Totals {
  std::atomic<uint64_t> sent{0}, received{0};
};

struct Connection {
  int fd;
  Sender sender;
  Receiver receiver;
  bool sent = false;
  bool received = false;
  Connection(int f, uint64_t number, const Plan& plan)
      : fd(f),
        sender(f, number, plan.is_server, plan.is_server ? plan.bytes_down : plan.bytes_up),
        receiver(f, number, plan.is_server, plan.is_server ? plan.bytes_up : plan.bytes_down) {}
};

void set_nonblocking(int fd) {
  must(fcntl(fd, F_SETFL, must(fcntl(fd, F_GETFL), "F_GETFL") | O_NONBLOCK), "F_SETFL");
}

/// The connection's number, which the client sends first.
uint64_t read_number(int fd) {
  uint64_t number = 0;
  size_t have = 0;
  while (have < sizeof number) {
    const ssize_t n = recv(fd, reinterpret_cast<char*>(&number) + have, sizeof number - have, 0);
    if (n == 0) errno = ECONNABORTED;
    if (n <= 0 && errno != EINTR) fail("connection number");
    if (n > 0) have += static_cast<size_t>(n);
  }
  return number;
}

int next_connection(const Plan& plan, int listener, const endpoint::Address& address,
                    uint64_t index, uint64_t& number) {
  if (!plan.is_server) {
    number = index;
    return endpoint::connected(address, SOCK_STREAM);
  }
  const int fd = must(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept");
  number = read_number(fd);
  return fd;
}

void run_threads(const Plan& plan, int listener, const endpoint::Address& address, Totals& totals) {
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < plan.connections; ++i) {
    uint64_t number = 0;
    const int fd = next_connection(plan, listener, address, i, number);
    threads.emplace_back([fd, number, &plan, &totals] {
      Connection c(fd, number, plan);
      std::thread sending([&c] {
        while (!c.sender.step(false)) {
        }
      });
      while (!c.receiver.step(false)) {
      }
      sending.join();
      totals.sent += c.sender.sent();
      totals.received += c.receiver.received();
      must(close(fd), "close");
    });
  }
  for (std::thread& t : threads) t.join();
}

void run_poll(const Plan& plan, int listener, const endpoint::Address& address, Totals& totals) {
  const int epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  std::vector<std::unique_ptr<Connection>> connections;
  for (uint64_t i = 0; i < plan.connections; ++i) {
    uint64_t number = 0;
    const int fd = next_connection(plan, listener, address, i, number);
    connections.push_back(std::make_unique<Connection>(fd, number, plan));
    // The number must be on its way before the next connect, else both sides wait for each other.
    if (!plan.is_server) connections.back()->sender.send_number();
    set_nonblocking(fd);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT;
    event.data.ptr = connections.back().get();
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "EPOLL_CTL_ADD");
  }
  std::array<epoll_event, 64> events;
  for (size_t left = connections.size(); left > 0;) {
    const int n = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    if (n < 0 && errno != EINTR) fail("epoll_wait");
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      auto& c = *static_cast<Connection*>(event.data.ptr);
      if (!c.received && (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
        c.received = c.receiver.step(true);
      if (!c.sent && (event.events & (EPOLLOUT | EPOLLERR)) != 0) {
        c.sent = c.sender.step(true);
        if (c.sent) {
          epoll_event only_in{};
          only_in.events = EPOLLIN;
          only_in.data.ptr = &c;
          must(epoll_ctl(epoll, EPOLL_CTL_MOD, c.fd, &only_in), "EPOLL_CTL_MOD");
        }
      }
      if (c.sent && c.received) {
        must(epoll_ctl(epoll, EPOLL_CTL_DEL, c.fd, nullptr), "EPOLL_CTL_DEL");
        totals.sent += c.sender.sent();
        totals.received += c.receiver.received();
        must(close(c.fd), "close");
        --left;
      }
    }
  }
  close(epoll);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr,
                 "usage: transfer server|client ADDRESS PORT CONNECTIONS BYTES [poll|threads] "
                 "[both|up|down]\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  Plan plan;
  plan.is_server = std::string_view(argv[1]) == "server";
  plan.connections = static_cast<unsigned>(std::atoi(argv[4]));
  const uint64_t bytes = std::strtoull(argv[5], nullptr, 10);
  const std::string_view mode = argc > 6 ? argv[6] : "poll";
  const std::string_view ways = argc > 7 ? argv[7] : "both";
  plan.bytes_up = ways == "down" ? 0 : bytes;
  plan.bytes_down = ways == "up" ? 0 : bytes;

  const endpoint::Address address(argv[2], argv[3]);
  int listener = -1;
  if (plan.is_server) {
    listener = endpoint::bound(address, SOCK_STREAM);
    must(listen(listener, 1024), "listen");
  }
  Totals totals;
  const auto start = std::chrono::steady_clock::now();
  (mode == "threads" ? run_threads : run_poll)(plan, listener, address, totals);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("{\"connections\":%u,\"sent\":%llu,\"received\":%llu,\"seconds\":%.3f}\n",
              plan.connections, static_cast<unsigned long long>(totals.sent),
              static_cast<unsigned long long>(totals.received), took.count());
  if (listener >= 0) close(listener);
  return 0;
}
