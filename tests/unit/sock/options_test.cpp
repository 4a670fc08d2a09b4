// Socket options and flags of the data calls: the same script on the kernel's sockets and on ours.
#include <linux/sockios.h>
#include <linux/tcp.h>

#include <array>
#include <cstring>
#include <fstream>
#include <utility>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class Options : public BothSides {
 protected:
  void link() { std::tie(c, s) = connection(); }
  void TearDown() override {
    if (c >= 0) a.close(c);
    if (s >= 0) b.close(s);
  }
  /// So many bytes wait at `fd`, within 5 s.
  static bool arrived(Api& api, int fd, int bytes) {
    for (int i = 0; i < 50'000; ++i) {
      if (api.ioctl(fd, FIONREAD) >= bytes) return true;
      ::usleep(100);
    }
    return false;
  }
  int c = -1, s = -1;
};
INSTANTIATE_TEST_SUITE_P(Sides, Options, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(Options, ValuesAndErrorsAreLinuxs) {
  link();
  struct Row {
    int level, name, set, result, reads;
  };
  int most = 0;
  std::ifstream("/proc/sys/net/core/rmem_max") >> most;
  const Row rows[] = {
      {SOL_SOCKET, SO_SNDBUF, 1, 0, 4608},
      {SOL_SOCKET, SO_RCVBUF, 1, 0, 2304},
      {SOL_SOCKET, SO_SNDBUF, 100'000, 0, 200'000},
      {SOL_SOCKET, SO_RCVBUFFORCE, 500'000, 0, 0},
      {SOL_SOCKET, SO_RCVBUF, 1 << 29, 0, 2 * most},  // net.core.rmem_max, doubled
      {SOL_SOCKET, SO_PRIORITY, 5, 0, 5},
      {SOL_SOCKET, SO_MARK, 0, 0, 0},
      {SOL_SOCKET, SO_INCOMING_CPU, 1, 0, 1},
      {SOL_SOCKET, SO_OOBINLINE, 3, 0, 1},
      {SOL_SOCKET, SO_RCVLOWAT, 0, 0, 1},
      {SOL_SOCKET, SO_SNDLOWAT, 5, -ENOPROTOOPT, 1},
      {IPPROTO_TCP, TCP_MAXSEG, 87, -EINVAL, -1},
      {IPPROTO_TCP, TCP_MAXSEG, 40'000, -EINVAL, -1},
      {IPPROTO_TCP, TCP_NODELAY, 2, 0, 1},
      {IPPROTO_TCP, TCP_CORK, 1, 0, 1},
      {IPPROTO_TCP, TCP_CORK, 0, 0, 0},
      {IPPROTO_TCP, TCP_KEEPIDLE, 32'768, -EINVAL, 7200},
      {IPPROTO_TCP, TCP_KEEPINTVL, 0, -EINVAL, 75},
      {IPPROTO_TCP, TCP_KEEPCNT, 128, -EINVAL, 9},
      {IPPROTO_TCP, TCP_KEEPCNT, 3, 0, 3},
      {IPPROTO_TCP, TCP_SYNCNT, 3, 0, 3},
      {IPPROTO_TCP, TCP_LINGER2, 7, 0, 7},
      {IPPROTO_TCP, TCP_LINGER2, -5, 0, -1},
      {IPPROTO_TCP, TCP_LINGER2, 10'000, 0, 120},
      {IPPROTO_TCP, TCP_USER_TIMEOUT, 4321, 0, 4321},
      {IPPROTO_TCP, TCP_USER_TIMEOUT, -1, -EINVAL, 4321},
      {IPPROTO_TCP, TCP_WINDOW_CLAMP, 20'000, 0, 20'000},
      {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16'384, 0, 16'384},
      {IPPROTO_TCP, TCP_QUICKACK, 0, 0, 0},
      {IPPROTO_TCP, TCP_QUICKACK, 1, 0, 1},
      {IPPROTO_IP, IP_TTL, 0, -EINVAL, 64},
      {IPPROTO_IP, IP_TTL, 17, 0, 17},
      {IPPROTO_IP, IP_TOS, 0x10, 0, 0x10},
      {IPPROTO_IP, IP_MTU_DISCOVER, 6, -EINVAL, 1},
      {IPPROTO_IP, IP_MTU_DISCOVER, 3, 0, 3},
  };
  for (const auto& [api, fd] : {std::pair{&a, c}, std::pair{&b, s}}) {
    for (const Row& r : rows) {
      EXPECT_EQ(api->setsockopt(fd, r.level, r.name, r.set), r.result)
          << r.level << ' ' << r.name << ' ' << r.set;
      if (r.reads > 0 || r.result == 0) {
        const int got = api->getsockopt(fd, r.level, r.name);
        if (r.name == SO_RCVBUFFORCE)
          EXPECT_LT(got, 0);
        else
          EXPECT_EQ(got, r.reads) << r.level << ' ' << r.name << ' ' << r.set;
      }
    }
    EXPECT_EQ(api->setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, 500'000), 0);
    EXPECT_EQ(api->getsockopt(fd, SOL_SOCKET, SO_RCVBUF), 1'000'000);
  }
}

TEST_P(Options, OneSocketsBuffersAreNotAnothers) {
  link();
  const auto [c2, s2] = connection();
  const int before = b.getsockopt(s2, SOL_SOCKET, SO_SNDBUF);
  EXPECT_EQ(b.setsockopt(s, SOL_SOCKET, SO_SNDBUF, 50'000), 0);
  EXPECT_EQ(b.getsockopt(s, SOL_SOCKET, SO_SNDBUF), 100'000);
  EXPECT_EQ(b.getsockopt(s2, SOL_SOCKET, SO_SNDBUF), before);
  a.close(c2);
  b.close(s2);
}

TEST_P(Options, AcceptedInheritsAll) {
  const std::tuple<int, int, int> set[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                                           {SOL_SOCKET, SO_OOBINLINE, 1},
                                           {SOL_SOCKET, SO_RCVLOWAT, 7},
                                           {SOL_SOCKET, SO_SNDBUF, 60'000},
                                           {SOL_SOCKET, SO_RCVBUF, 70'000},
                                           {IPPROTO_TCP, TCP_KEEPIDLE, 100},
                                           {IPPROTO_TCP, TCP_KEEPINTVL, 20},
                                           {IPPROTO_TCP, TCP_KEEPCNT, 4},
                                           {IPPROTO_TCP, TCP_LINGER2, 9},
                                           {IPPROTO_TCP, TCP_USER_TIMEOUT, 9000},
                                           {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 12'345},
                                           {IPPROTO_TCP, TCP_CORK, 1},
                                           {IPPROTO_TCP, TCP_NODELAY, 1},
                                           {IPPROTO_IP, IP_TTL, 33},
                                           {IPPROTO_TCP, TCP_WINDOW_CLAMP, 30'000}};
  const int l = b.socket(AF_INET, SOCK_STREAM);
  for (const auto& [level, name, value] : set) EXPECT_EQ(b.setsockopt(l, level, name, value), 0);
  const linger lin{1, 3};
  EXPECT_EQ(b.setsockopt(l, SOL_SOCKET, SO_LINGER, &lin, sizeof lin), 0);
  b.bind(l, 0);
  b.listen(l);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  c = a.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  s = b.accept(l);
  ASSERT_GE(s, 0);
  for (const auto& [level, name, value] : set) {
    const bool doubled = level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF);
    EXPECT_EQ(b.getsockopt(s, level, name), doubled ? 2 * value : value) << level << ' ' << name;
  }
  linger got{};
  socklen_t len = sizeof got;
  EXPECT_EQ(b.getsockopt(s, SOL_SOCKET, SO_LINGER, &got, &len), 0);
  EXPECT_EQ(got.l_linger, 3);
  b.setsockopt(s, SOL_SOCKET, SO_LINGER, std::array<int, 2>{}.data(), sizeof(linger));
  b.close(l);
}

/// Sockets that have the same options share them; whoever changes one leaves the others alone.
TEST_P(Options, OneConnectionsOptionsAreNotItsSiblings) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(b.bind(l, 0), 0);
  ASSERT_EQ(b.setsockopt(l, SOL_SOCKET, SO_PRIORITY, 3), 0);
  ASSERT_EQ(b.fcntl(l, F_SETOWN, ::getpid()), 0);
  ASSERT_EQ(b.listen(l), 0);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  int theirs[3], mine[3];
  for (int i = 0; i < 3; ++i) {
    mine[i] = a.socket(AF_INET, SOCK_STREAM);
    ASSERT_EQ(a.connect(mine[i], sockaddr_of(to), length(to)), 0);
    theirs[i] = b.accept(l);
    ASSERT_GE(theirs[i], 0);
    EXPECT_EQ(b.getsockopt(theirs[i], SOL_SOCKET, SO_PRIORITY), 0) << "not inherited (socket(7))";
    EXPECT_EQ(b.fcntl(theirs[i], F_GETOWN), 0) << "nor this: it is the description's (fcntl(2))";
  }
  const auto of = [&](int fd) { return &*fd_table().find(fd)->tcp.options; };
  if (ours()) {
    EXPECT_EQ(of(theirs[0]), of(theirs[1]));
  }
  for (const int i : {0, 2}) EXPECT_EQ(b.setsockopt(theirs[i], SOL_SOCKET, SO_KEEPALIVE, 1), 0);
  if (ours()) {
    EXPECT_EQ(of(theirs[0]), of(theirs[2])) << "set alike";
    EXPECT_NE(of(theirs[0]), of(theirs[1]));
  }
  for (const int i : {0, 1, 2})
    EXPECT_EQ(b.getsockopt(theirs[i], SOL_SOCKET, SO_KEEPALIVE), i == 1 ? 0 : 1);
  EXPECT_EQ(b.getsockopt(l, SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_EQ(b.getsockopt(l, SOL_SOCKET, SO_PRIORITY), 3);
  for (const int fd : theirs) b.close(fd);
  for (const int fd : mine) a.close(fd);
  b.close(l);
}

TEST_P(Options, MaxsegBeforeConnectIsOffered) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  b.bind(l, 0);
  b.listen(l);
  const auto to = address(b.host(), port_of(b.getsockname(l)));
  c = a.socket(AF_INET, SOCK_STREAM);
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_MAXSEG, 700), 0);
  EXPECT_EQ(a.getsockopt(c, IPPROTO_TCP, TCP_MAXSEG), 700);
  ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  s = b.accept(l);
  EXPECT_EQ(a.getsockopt(c, IPPROTO_TCP, TCP_MAXSEG), 688);  // less the timestamps
  EXPECT_EQ(b.getsockopt(s, IPPROTO_TCP, TCP_MAXSEG), 688);
  b.close(l);
}

TEST_P(Options, QuickackIsNotPermanent) {
  link();
  EXPECT_EQ(a.getsockopt(c, IPPROTO_TCP, TCP_QUICKACK), 1);
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_QUICKACK, 0), 0);
  EXPECT_EQ(a.getsockopt(c, IPPROTO_TCP, TCP_QUICKACK), 0);
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_QUICKACK, 1), 0);
  EXPECT_EQ(a.getsockopt(c, IPPROTO_TCP, TCP_QUICKACK), 1);
  for (int i = 0; i < 3; ++i) {  // question and answer: an interactive connection
    EXPECT_EQ(b.send(s, "?"), 1);
    EXPECT_EQ(a.recv(c), "?");
    EXPECT_EQ(a.send(c, "!"), 1);
    EXPECT_EQ(b.recv(s), "!");
  }
  EXPECT_EQ(a.getsockopt(c, IPPROTO_TCP, TCP_QUICKACK), 0);
}

TEST_P(Options, ReceiveLowWaterMarkHoldsReadinessBack) {
  link();
  EXPECT_EQ(b.setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, 10), 0);
  EXPECT_EQ(a.send(c, "12345"), 5);
  ASSERT_TRUE(arrived(b, s, 5));
  EXPECT_FALSE(b.ready(s) & POLLIN);
  EXPECT_EQ(b.recv(s, 3, MSG_DONTWAIT | MSG_PEEK), "123");
  EXPECT_EQ(a.send(c, "67890"), 5);
  EXPECT_TRUE(b.await(s, POLLIN));
  EXPECT_EQ(b.recv(s, 100), "1234567890");
  EXPECT_EQ(a.send(c, "abc"), 3);
  ASSERT_TRUE(arrived(b, s, 3));
  EXPECT_FALSE(b.ready(s) & POLLIN);
  EXPECT_EQ(b.setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, 1), 0);
  EXPECT_TRUE(b.ready(s) & POLLIN);
  EXPECT_EQ(b.setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, 10), 0);
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  EXPECT_TRUE(b.await(s, POLLIN | POLLRDHUP));  // the end is always told
}

TEST_P(Options, NotsentLowWaterMarkHoldsWritabilityBack) {
  link();
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 30'000), 0);
  EXPECT_TRUE(a.ready(c) & POLLOUT);
  EXPECT_EQ(a.fcntl(c, F_SETFL, O_RDWR | O_NONBLOCK), 0);
  const std::string block(16 << 10, 'x');
  size_t sent = 0;
  for (int quiet = 0; quiet < 20;) {  // until the peer's window is full
    const ssize_t n = a.send(c, block);
    if (n > 0) sent += static_cast<size_t>(n), quiet = 0;
    if (n < 0) ::usleep(5'000), ++quiet;
    ASSERT_LT(sent, size_t{64} << 20);
  }
  EXPECT_FALSE(a.ready(c) & POLLOUT);
  const int unsent = a.ioctl(c, SIOCOUTQNSD);
  EXPECT_GE(unsent, 15'000);
  EXPECT_LT(unsent, 150'000);  // the kernel overshoots by a buffer
  EXPECT_GE(a.ioctl(c, SIOCOUTQ), unsent);
  size_t got = 0;
  for (int i = 0; i < 100'000 && !(a.ready(c) & POLLOUT); ++i) {
    const std::string part = b.recv(s, 1 << 20, MSG_DONTWAIT);
    if (part != "!EAGAIN")
      got += part.size();
    else
      ::usleep(100);
  }
  EXPECT_TRUE(a.ready(c) & POLLOUT);
  EXPECT_GT(got, 0);
  EXPECT_LT(a.ioctl(c, SIOCOUTQNSD), 15'000);
}

TEST_P(Options, PeekAndTruncTogetherOnlyCount) {
  link();
  EXPECT_EQ(a.send(c, "abcdef"), 6);
  ASSERT_TRUE(arrived(b, s, 6));
  char buffer[8] = "-------";
  EXPECT_EQ(b.recv(s, buffer, 4, MSG_PEEK | MSG_TRUNC), 4);
  EXPECT_STREQ(buffer, "-------");
  EXPECT_EQ(b.recv(s, nullptr, 2, MSG_TRUNC), 2);
  EXPECT_EQ(b.recv(s, 10, MSG_WAITALL | MSG_DONTWAIT), "cdef");
  EXPECT_EQ(b.recv(s, 0, MSG_DONTWAIT), "!EAGAIN");
  EXPECT_EQ(a.send(c, ""), 0);
}

TEST_P(Options, WaitallPeekWaitsForAll) {
  link();
  EXPECT_EQ(a.send(c, "abc"), 3);
  const timeval t{0, 100'000};
  b.setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  EXPECT_EQ(b.recv(s, 5, MSG_WAITALL | MSG_PEEK),
            "abc");  // the timeout ends it, with what is there
  EXPECT_EQ(a.send(c, "de"), 2);
  EXPECT_EQ(b.recv(s, 5, MSG_WAITALL), "abcde");
}

TEST_P(Options, QueueSizesCountTheFin) {
  link();
  EXPECT_EQ(a.ioctl(c, SIOCOUTQ), 0);
  EXPECT_EQ(a.send(c, "abc"), 3);
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  for (int i = 0; i < 20'000 && a.ioctl(c, SIOCOUTQ) != 0; ++i) {
    b.ready(s);
    ::usleep(100);
  }
  EXPECT_EQ(a.ioctl(c, SIOCOUTQ), 0);
  EXPECT_EQ(a.ioctl(c, SIOCOUTQNSD), 0);
  ASSERT_TRUE(arrived(b, s, 3));
  EXPECT_EQ(b.ioctl(s, FIONREAD), 3);  // not the FIN
}

TEST_P(Options, LingerWaitsForTheAcknowledgmentAlsoIfNonBlocking) {  // TCP.md 4.45
  link();
  const linger lin{1, 5};
  EXPECT_EQ(a.setsockopt(c, SOL_SOCKET, SO_LINGER, &lin, sizeof lin), 0);
  EXPECT_EQ(a.fcntl(c, F_SETFL, O_RDWR | O_NONBLOCK), 0);
  EXPECT_EQ(a.send(c, "last words"), 10);
  const auto start = Clock::now();
  EXPECT_EQ(a.close(std::exchange(c, -1)), 0);
  EXPECT_LT(Clock::now() - start, Duration::s(3));
  EXPECT_EQ(b.recv(s), "last words");
  EXPECT_EQ(b.recv(s), "");
}

TEST_P(Options, LingerGivesUpInTime) {  // TCP.md 4.45
  link();
  const linger lin{1, 1};
  EXPECT_EQ(a.setsockopt(c, SOL_SOCKET, SO_LINGER, &lin, sizeof lin), 0);
  EXPECT_EQ(a.fcntl(c, F_SETFL, O_RDWR | O_NONBLOCK), 0);
  const std::string block(256 << 10, 'x');
  for (int quiet = 0; quiet < 10;)
    if (a.send(c, block) < 0) ::usleep(5'000), ++quiet;
  const auto start = Clock::now();
  EXPECT_EQ(a.close(std::exchange(c, -1)), 0);  // the peer does not read: its window is shut
  EXPECT_GE(Clock::now() - start, Duration::ms(900));
  EXPECT_LT(Clock::now() - start, Duration::ms(3000));
}

TEST_P(Options, InfoTellsWhatIsNotCongestion) {
  link();
  EXPECT_EQ(a.send(c, "12345"), 5);
  ASSERT_TRUE(arrived(b, s, 5));
  for (int i = 0; i < 20'000 && a.ioctl(c, SIOCOUTQ) != 0; ++i) ::usleep(100);
  tcp_info i{}, j{};
  socklen_t len = sizeof i;
  EXPECT_EQ(a.getsockopt(c, IPPROTO_TCP, TCP_INFO, &i, &len), 0);
  len = sizeof j;
  EXPECT_EQ(b.getsockopt(s, IPPROTO_TCP, TCP_INFO, &j, &len), 0);
  EXPECT_EQ(i.tcpi_pmtu, 1500U);
  EXPECT_EQ(i.tcpi_advmss, 1448U);
  EXPECT_EQ(i.tcpi_snd_mss, 1448U);
  EXPECT_EQ(i.tcpi_bytes_sent, 5U);
  EXPECT_GE(i.tcpi_bytes_acked, 5U);  // Linux counts the SYN, too
  EXPECT_EQ(j.tcpi_bytes_received, 5U);
  EXPECT_EQ(i.tcpi_data_segs_out, 1U);
  EXPECT_EQ(j.tcpi_data_segs_in, 1U);
  EXPECT_EQ(i.tcpi_unacked, 0U);
  EXPECT_EQ(i.tcpi_notsent_bytes, 0U);
  EXPECT_EQ(i.tcpi_backoff, 0U);
  EXPECT_EQ(i.tcpi_probes, 0U);
  EXPECT_EQ(i.tcpi_options & (TCPI_OPT_TIMESTAMPS | TCPI_OPT_SACK | TCPI_OPT_WSCALE), 7);
  EXPECT_GT(i.tcpi_rto, 0U);
  EXPECT_GT(j.tcpi_rcv_space, 0U);
  EXPECT_GT(i.tcpi_snd_wnd, 0U);
  len = 8;  // an old program asks for less
  EXPECT_EQ(a.getsockopt(c, IPPROTO_TCP, TCP_INFO, &i, &len), 0);
  EXPECT_EQ(len, 8U);
}

TEST_P(Options, RetransmissionTimesOfNewKernels) {
  constexpr int kRtoMinUs = 45, kDelackMaxUs = 46;  // linux/tcp.h since 6.15
  const int probe = a.socket(AF_INET, SOCK_STREAM);
  const bool knows = a.setsockopt(probe, IPPROTO_TCP, kRtoMinUs, 100'000) == 0;
  a.close(probe);
  if (!knows) GTEST_SKIP() << "the kernel does not know them";
  link();
  for (const auto& [api, fd] : {std::pair{&a, c}, std::pair{&b, s}}) {
    EXPECT_EQ(api->setsockopt(fd, IPPROTO_TCP, kRtoMinUs, 300'000), -EINVAL);
    EXPECT_EQ(api->setsockopt(fd, IPPROTO_TCP, kRtoMinUs, 40'000), 0);
    EXPECT_EQ(api->getsockopt(fd, IPPROTO_TCP, kRtoMinUs), 40'000);
    EXPECT_EQ(api->setsockopt(fd, IPPROTO_TCP, kDelackMaxUs, 20'000), 0);
    EXPECT_EQ(api->getsockopt(fd, IPPROTO_TCP, kDelackMaxUs), 20'000);
  }
  EXPECT_EQ(a.send(c, "x"), 1);
  EXPECT_EQ(b.recv(s), "x");
  EXPECT_EQ(b.send(s, "y"), 1);
  EXPECT_EQ(a.recv(c), "y");
}

}  // namespace
}  // namespace vireo::test
