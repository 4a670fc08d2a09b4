// TCP sockets, the same script on the kernel's and on ours.
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/mman.h>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class Tcp : public BothSides {};
INSTANTIATE_TEST_SUITE_P(Sides, Tcp, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(Tcp, CarriesBytesBothWaysAndEndsInOrder) {
  const auto [c, s] = connection();
  EXPECT_EQ(a.send(c, "ping"), 4);
  EXPECT_EQ(b.recv(s), "ping");
  EXPECT_EQ(b.send(s, "pong"), 4);
  EXPECT_EQ(a.recv(c), "pong");
  EXPECT_EQ(a.close(c), 0);
  EXPECT_EQ(b.recv(s), "");
  EXPECT_EQ(b.recv(s), "");
  EXPECT_EQ(b.close(s), 0);
}

// socket(7) SO_REUSEPORT: several listeners of one port, each connection to one of them.
TEST_P(Tcp, ReusePortSpreadsConnections) {
  constexpr int kListeners = 3, kClients = 60;
  int l[kListeners];
  uint16_t port = 0;
  for (int& fd : l) {
    fd = b.socket(AF_INET, SOCK_STREAM);
    ASSERT_EQ(b.setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, 1), 0);
    ASSERT_EQ(b.bind(fd, port), 0);
    ASSERT_EQ(b.listen(fd, 128), 0);
    b.fcntl(fd, F_SETFL, O_NONBLOCK);
    port = port_of(b.getsockname(fd));
    EXPECT_EQ(b.is_listening_carried(fd), ours());
  }
  const auto to = address(b.host(), port);
  std::vector<int> open;
  for (int i = 0; i < kClients; ++i) {
    open.push_back(a.socket(AF_INET, SOCK_STREAM));
    ASSERT_EQ(a.connect(open.back(), sockaddr_of(to), length(to)), 0);
  }
  ::usleep(20'000);
  int all = 0;
  for (const int fd : l) {
    int mine = 0;
    for (int s = b.accept(fd); s >= 0; s = b.accept(fd), ++mine) b.close(s);
    EXPECT_GT(mine, 4);
    all += mine;
  }
  EXPECT_EQ(all, kClients);
  for (const int fd : l) b.close(fd);
  for (const int fd : open) a.close(fd);
}

// tcp(7) TCP_DEFER_ACCEPT: accept() wakes for data, not for the connection.
TEST_P(Tcp, DeferAcceptWaitsForData) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(b.setsockopt(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, 10), 0);
  ASSERT_EQ(b.bind(l, 0), 0);
  ASSERT_EQ(b.listen(l), 0);
  b.fcntl(l, F_SETFL, O_NONBLOCK);
  const int c = a.socket(AF_INET, SOCK_STREAM);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  ::usleep(20'000);
  EXPECT_EQ(b.ready(l), 0);
  EXPECT_EQ(b.accept(l), -EAGAIN);
  EXPECT_EQ(a.send(c, "GET"), 3);
  ASSERT_TRUE(b.await(l, POLLIN));
  const int s = b.accept(l);
  ASSERT_GE(s, 0);
  EXPECT_EQ(b.recv(s), "GET");
  for (const int fd : {l, s}) b.close(fd);
  a.close(c);
}

TEST_P(Tcp, WorksOverIpv6) {
  const auto [c, s] = connection(AF_INET6);
  EXPECT_EQ(a.send(c, "six"), 3);
  EXPECT_EQ(b.recv(s), "six");
  sockaddr_storage peer{};
  EXPECT_EQ(b.getpeername(s, peer), 0);
  EXPECT_EQ(peer.ss_family, AF_INET6);
  const in6_addr from = a.host().address6();
  EXPECT_EQ(0, memcmp(&reinterpret_cast<sockaddr_in6&>(peer).sin6_addr, &from, sizeof from));
  a.close(c);
  b.close(s);
}

TEST_P(Tcp, NamesAreTheConnections) {
  const auto [c, s] = connection();
  sockaddr_storage peer_of_s{}, peer_of_c{};
  ASSERT_EQ(b.getpeername(s, peer_of_s), 0);
  ASSERT_EQ(a.getpeername(c, peer_of_c), 0);
  EXPECT_EQ(port_of(a.getsockname(c)), port_of(peer_of_s));
  EXPECT_EQ(port_of(b.getsockname(s)), port_of(peer_of_c));
  EXPECT_EQ(reinterpret_cast<sockaddr_in&>(peer_of_s).sin_addr.s_addr, a.host().address().s_addr);
  a.close(c);
  b.close(s);
}

TEST_P(Tcp, PeekTruncWaitallAndQueueSizes) {
  const auto [c, s] = connection();
  EXPECT_EQ(a.send(c, "abcdef"), 6);
  ASSERT_TRUE(b.await(s, POLLIN));
  EXPECT_EQ(b.recv(s, 3, MSG_PEEK), "abc");
  EXPECT_EQ(b.recv(s, 100, MSG_PEEK), "abcdef");
  EXPECT_EQ(b.ioctl(s, FIONREAD), 6);
  char none[4];
  EXPECT_EQ(b.recv(s, none, 2, MSG_TRUNC), 2);  // thrown away
  EXPECT_EQ(b.recv(s, 2), "cd");
  EXPECT_EQ(b.ioctl(s, FIONREAD), 2);
  EXPECT_EQ(a.send(c, "gh"), 2);
  EXPECT_EQ(b.recv(s, 4, MSG_WAITALL), "efgh");
  EXPECT_EQ(b.recv(s, 4, MSG_DONTWAIT), "!EAGAIN");
  a.close(c);
  b.close(s);
}

TEST_P(Tcp, TheNullPointerIsNoMemory) {  // send(2), recv(2) EFAULT; tcp(7) MSG_TRUNC needs none
  const auto [c, s] = connection();
  EXPECT_EQ(a.send(c, nullptr, 10, 0), -EFAULT);
  EXPECT_EQ(a.send(c, nullptr, 10, MSG_MORE), -EFAULT);
  EXPECT_EQ(a.send(c, nullptr, 0, 0), 0);
  EXPECT_EQ(a.send(c, "abcd"), 4);
  ASSERT_TRUE(b.await(s, POLLIN));
  EXPECT_EQ(b.recv(s, nullptr, 10), -EFAULT);
  EXPECT_EQ(b.recv(s, nullptr, 10, MSG_PEEK), -EFAULT);
  EXPECT_EQ(b.recv(s, nullptr, 2, MSG_TRUNC), 2);
  EXPECT_EQ(b.recv(s), "cd");
  EXPECT_EQ(a.close(c), 0);
  EXPECT_EQ(b.close(s), 0);
}

TEST_P(Tcp, ShutdownHalfCloses) {
  const auto [c, s] = connection();
  EXPECT_EQ(a.send(c, "last"), 4);
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  EXPECT_EQ(a.send(c, "x"), -EPIPE);
  EXPECT_EQ(b.recv(s), "last");
  EXPECT_EQ(b.recv(s), "");
  EXPECT_TRUE(b.ready(s) & POLLRDHUP);
  EXPECT_FALSE(b.ready(s) & POLLHUP);
  EXPECT_EQ(b.send(s, "still"), 5);
  EXPECT_EQ(a.recv(c), "still");
  EXPECT_EQ(b.shutdown(s, SHUT_WR), 0);
  EXPECT_TRUE(a.await(c, POLLHUP | POLLRDHUP | POLLIN));
  EXPECT_EQ(a.recv(c), "");
  a.close(c);
  b.close(s);
}

TEST_P(Tcp, ResetIsReportedOnce) {
  const auto [c, s] = connection();
  const linger hard{1, 0};
  EXPECT_EQ(a.setsockopt(c, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
  EXPECT_EQ(a.close(c), 0);
  EXPECT_TRUE(b.await(s, POLLERR | POLLHUP | POLLIN | POLLOUT | POLLRDHUP));
  EXPECT_EQ(b.recv(s), "!ECONNRESET");
  EXPECT_EQ(b.recv(s), "");
  EXPECT_EQ(b.send(s, "x"), -EPIPE);
  EXPECT_EQ(b.getsockopt(s, SOL_SOCKET, SO_ERROR), 0);
  sockaddr_storage peer{};
  EXPECT_EQ(b.getpeername(s, peer), -ENOTCONN);
  EXPECT_EQ(b.shutdown(s, SHUT_RDWR), -ENOTCONN);
  b.close(s);
}

TEST_P(Tcp, SoErrorTakesTheReset) {
  const auto [c, s] = connection();
  const linger hard{1, 0};
  a.setsockopt(c, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  a.close(c);
  ASSERT_TRUE(b.await(s, POLLERR));
  EXPECT_EQ(b.getsockopt(s, SOL_SOCKET, SO_ERROR), ECONNRESET);
  EXPECT_EQ(b.getsockopt(s, SOL_SOCKET, SO_ERROR), 0);
  EXPECT_EQ(b.recv(s), "");
  b.close(s);
}

TEST_P(Tcp, UnreadDataResetsAtClose) {
  const auto [c, s] = connection();
  EXPECT_EQ(a.send(c, "unread"), 6);
  ASSERT_TRUE(b.await(s, POLLIN));
  b.close(s);
  ASSERT_TRUE(a.await(c, POLLERR | POLLHUP));
  EXPECT_EQ(a.recv(c), "!ECONNRESET");
  a.close(c);
}

TEST_P(Tcp, RefusedConnect) {
  const int c = a.socket(AF_INET, SOCK_STREAM);
  const auto nobody = address(b.host(), 9);
  EXPECT_EQ(a.connect(c, sockaddr_of(nobody), length(nobody)), -ECONNREFUSED);
  EXPECT_EQ(a.getsockopt(c, SOL_SOCKET, SO_ERROR), 0);
  EXPECT_EQ(a.close(c), 0);
}

TEST_P(Tcp, NonBlockingConnect) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  const int c = a.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
  const int r = a.connect(c, sockaddr_of(to), length(to));
  EXPECT_TRUE(r == -EINPROGRESS || r == 0) << r;
  ASSERT_TRUE(a.await(c, POLLOUT));
  EXPECT_EQ(a.getsockopt(c, SOL_SOCKET, SO_ERROR), 0);
  EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), r == 0 ? -EISCONN : 0);
  EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), -EISCONN);
  EXPECT_EQ(a.recv(c), "!EAGAIN");
  EXPECT_EQ(a.fcntl(c, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_RDWR);
  const int s = b.accept(l, SOCK_NONBLOCK);
  ASSERT_GE(s, 0);
  EXPECT_EQ(b.fcntl(s, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  EXPECT_EQ(b.fcntl(s, F_SETFL, b.fcntl(s, F_GETFL) & ~O_NONBLOCK), 0);
  EXPECT_EQ(b.fcntl(s, F_GETFL) & O_NONBLOCK, 0);
  a.close(c);
  b.close(s);
  b.close(l);
}

TEST_P(Tcp, NonBlockingRefused) {
  const int c = a.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
  const auto nobody = address(b.host(), 9);
  const int r = a.connect(c, sockaddr_of(nobody), length(nobody));
  ASSERT_TRUE(r == -EINPROGRESS || r == -ECONNREFUSED) << r;
  if (r == -EINPROGRESS) {
    ASSERT_TRUE(a.await(c, POLLERR | POLLHUP | POLLOUT | POLLIN));
    EXPECT_EQ(a.getsockopt(c, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
    EXPECT_EQ(a.getsockopt(c, SOL_SOCKET, SO_ERROR), 0);
  }
  a.close(c);
}

TEST_P(Tcp, ReceiveTimeout) {
  const auto [c, s] = connection();
  const timeval t{0, 50'000};
  EXPECT_EQ(a.setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
  const auto start = Clock::now();
  EXPECT_EQ(a.recv(c), "!EAGAIN");
  EXPECT_GE(Clock::now() - start, Duration::ms(45));
  a.close(c);
  b.close(s);
}

TEST_P(Tcp, FullSendBufferSaysEagainAndWritableAgain) {
  const auto [c, s] = connection();
  EXPECT_EQ(a.fcntl(c, F_SETFL, O_RDWR | O_NONBLOCK), 0);
  const std::string block(64 << 10, 'x');
  size_t sent = 0;
  for (;;) {
    const ssize_t n = a.send(c, block);
    if (n < 0) {
      EXPECT_EQ(n, -EAGAIN);
      ::usleep(20'000);  // what is under way arrives: then it is really full
      if (a.send(c, block) == -EAGAIN) break;
      continue;
    }
    sent += static_cast<size_t>(n);
    ASSERT_LT(sent, size_t{64} << 20);
  }
  EXPECT_FALSE(a.ready(c) & POLLOUT);
  size_t got = 0;
  while (true) {
    const std::string part = b.recv(s, 1 << 20, MSG_DONTWAIT);
    if (part == "!EAGAIN") {
      if (a.ready(c) & POLLOUT) break;
      ::usleep(200);
      continue;
    }
    got += part.size();
  }
  EXPECT_GT(got, 0U);
  a.close(c);
  b.close(s);
}

TEST_P(Tcp, DupSharesTheDescription) {
  const auto [c, s] = connection();
  const int d = a.dup(c);
  ASSERT_GE(d, 0);
  EXPECT_EQ(a.fcntl(d, F_SETFL, O_RDWR | O_NONBLOCK), 0);
  EXPECT_EQ(a.fcntl(c, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  EXPECT_EQ(a.close(c), 0);
  EXPECT_EQ(a.send(d, "by the other name"), 17);
  EXPECT_EQ(b.recv(s), "by the other name");
  EXPECT_EQ(b.recv(s, 1, MSG_DONTWAIT), "!EAGAIN");  // not closed yet
  EXPECT_EQ(a.close(d), 0);
  EXPECT_EQ(b.recv(s), "");
  b.close(s);
}

TEST_P(Tcp, SendfileIsShortAtTheEnd) {
  const auto [c, s] = connection();
  UniqueFd file(::memfd_create("vr-sock-file", 0));
  const std::string text(100'000, 'f');
  ASSERT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  off_t at = 10;
  size_t sent = 0;
  std::string got;
  while (sent < text.size() - 10) {
    const ssize_t n = a.sendfile(c, file.get(), &at, 200'000);
    ASSERT_GT(n, 0);
    sent += static_cast<size_t>(n);
    while (got.size() < sent) got += b.recv(s);
  }
  EXPECT_EQ(at, 100'000);
  EXPECT_EQ(a.sendfile(c, file.get(), &at, 10), 0);
  EXPECT_EQ(got, text.substr(10));
  a.close(c);
  b.close(s);
}

TEST_P(Tcp, ListenerServesLoopbackToo) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  const uint16_t port = port_of(b.getsockname(l));
  sockaddr_storage self = address(b.host(), port);
  reinterpret_cast<sockaddr_in&>(self).sin_addr.s_addr = __builtin_bswap32(INADDR_LOOPBACK);
  const int c = b.socket(AF_INET, SOCK_STREAM);
  EXPECT_EQ(b.connect(c, sockaddr_of(self), length(self)), 0);
  EXPECT_FALSE(b.is_carried(c));
  sockaddr_storage peer{};
  const int s = b.accept(l, 0, &peer);
  ASSERT_GE(s, 0);
  EXPECT_EQ(port_of(peer), port_of(b.getsockname(c)));
  EXPECT_EQ(b.send(c, "home"), 4);
  EXPECT_EQ(b.recv(s), "home");
  b.close(c);
  b.close(s);
  b.close(l);
}

TEST_P(Tcp, OptionsReadBackTheSame) {
  const auto [c, s] = connection();
  for (const auto& [api, fd] : {std::pair{&a, c}, std::pair{&b, s}}) {
    EXPECT_EQ(api->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, 1), 0);
    EXPECT_EQ(api->getsockopt(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(api->setsockopt(fd, SOL_SOCKET, SO_RCVBUF, 30'000), 0);
    EXPECT_EQ(api->getsockopt(fd, SOL_SOCKET, SO_RCVBUF), 60'000);
    EXPECT_EQ(api->setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, 7), 0);
    EXPECT_EQ(api->getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(api->setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, 33), 0);
    EXPECT_EQ(api->getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE), 33);
    EXPECT_EQ(api->setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, 0), -EINVAL);
    EXPECT_EQ(api->setsockopt(fd, IPPROTO_TCP, 9999, 0), -ENOPROTOOPT);
    EXPECT_EQ(api->getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN), 0);
    EXPECT_EQ(api->getsockopt(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
    EXPECT_EQ(api->getsockopt(fd, SOL_SOCKET, 2800), -ENOPROTOOPT);  // libvma's extra API
    EXPECT_GT(api->getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG), 1000);
    tcp_info info{};
    socklen_t len = sizeof info;
    EXPECT_EQ(api->getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
    EXPECT_EQ(info.tcpi_state, TCP_ESTABLISHED);
  }
  a.close(c);
  b.close(s);
}

TEST_P(Tcp, CongestionControlIsChosenByName) {  // tcp(7) TCP_CONGESTION
  const int l = b.socket(AF_INET, SOCK_STREAM);
  EXPECT_EQ(b.setsockopt(l, IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);
  b.bind(l, 0);
  b.listen(l);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  const int c = a.socket(AF_INET, SOCK_STREAM);
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "no-such", 7), -ENOENT);
  ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  const int s = b.accept(l);
  ASSERT_GE(s, 0);
  const auto name_of = [](auto& api, int fd) {
    char name[16] = {};
    socklen_t len = sizeof name;
    EXPECT_EQ(api.getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
    EXPECT_EQ(len, sizeof name);
    return std::string(name);
  };
  EXPECT_EQ(name_of(b, s), "reno");  // inherited
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5), 0);
  EXPECT_EQ(name_of(a, c), "cubic");
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "reno", 5), 0);  // its end is not needed
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "no-such", 7), -ENOENT);
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "", 0), -EINVAL);
  EXPECT_EQ(name_of(a, c), "reno");
  a.close(c);
  b.close(s);
  b.close(l);
}

TEST_P(Tcp, PacingRateReadsBackInBothWidths) {  // socket(7) SO_MAX_PACING_RATE
  const auto [c, s] = connection();
  for (const auto& [api, fd] : {std::pair{&a, c}, std::pair{&b, s}}) {
    const auto get = [api, fd](size_t width) {
      uint64_t v = 0;
      auto len = static_cast<socklen_t>(width);
      EXPECT_EQ(api->getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &v, &len), 0);
      EXPECT_EQ(len, width);
      return v;
    };
    EXPECT_EQ(get(8), UINT64_MAX);
    EXPECT_EQ(api->setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, 1'000'000'000), 0);
    EXPECT_EQ(get(8), 1'000'000'000u);
    const uint64_t wide = 50'000'000'000;
    EXPECT_EQ(api->setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &wide, sizeof wide), 0);
    EXPECT_EQ(get(8), wide);
    EXPECT_EQ(get(4), UINT32_MAX);
    EXPECT_EQ(api->setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &wide, 3), -EINVAL);
    tcp_info info{};
    socklen_t len = sizeof info;
    EXPECT_EQ(api->getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
    EXPECT_EQ(info.tcpi_snd_cwnd, 10u);
    EXPECT_EQ(info.tcpi_snd_ssthresh, 0x7fffffffu);
  }
  a.close(c);
  b.close(s);
}

TEST_P(Tcp, AcceptedInheritsFromTheListener) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  const timeval t{3, 0};
  EXPECT_EQ(b.setsockopt(l, IPPROTO_TCP, TCP_NODELAY, 1), 0);
  EXPECT_EQ(b.setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
  b.bind(l, 0);
  b.listen(l);
  EXPECT_EQ(b.getsockopt(l, SOL_SOCKET, SO_ACCEPTCONN), 1);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  const int c = a.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  const int s = b.accept(l);
  ASSERT_GE(s, 0);
  EXPECT_EQ(b.getsockopt(s, IPPROTO_TCP, TCP_NODELAY), 1);
  timeval got{};
  socklen_t len = sizeof got;
  EXPECT_EQ(b.getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &got, &len), 0);
  EXPECT_EQ(got.tv_sec, 3);
  a.close(c);
  b.close(s);
  b.close(l);
}

}  // namespace
}  // namespace vireo::test
