// Urgent data: the same script on the kernel's sockets and on ours.
#include <linux/sockios.h>

#include <atomic>
#include <csignal>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

std::atomic<int> g_signals{0};

class Urgent : public BothSides {
 protected:
  void SetUp() override { std::tie(c, s) = connection(); }
  void TearDown() override {
    a.close(c);
    b.close(s);
  }
  bool there() { return b.await(s, POLLPRI); }
  int c = -1, s = -1;
};
INSTANTIATE_TEST_SUITE_P(Sides, Urgent, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(Urgent, NothingUrgentIsInvalid) {
  EXPECT_EQ(b.recv(s, 1, MSG_OOB), "!EINVAL");
  EXPECT_EQ(b.ioctl(s, SIOCATMARK), 0);
  EXPECT_FALSE(b.ready(s) & POLLPRI);
}

TEST_P(Urgent, IsTakenOutOfBandAndReadsStopAtTheMark) {
  EXPECT_EQ(a.send(c, "abc"), 3);
  EXPECT_EQ(a.send(c, "d!", MSG_OOB), 2);
  EXPECT_EQ(a.send(c, "efg"), 3);
  ASSERT_TRUE(there());
  while (b.recv(s, 10, MSG_OOB | MSG_PEEK) != "!") ::usleep(100);
  EXPECT_EQ(b.ioctl(s, FIONREAD), 4);  // up to the mark
  EXPECT_EQ(b.ioctl(s, SIOCATMARK), 0);
  EXPECT_EQ(b.recv(s, 10, MSG_OOB), "!");
  EXPECT_EQ(b.recv(s, 10, MSG_OOB), "!EINVAL");
  EXPECT_FALSE(b.ready(s) & POLLPRI);
  EXPECT_EQ(b.recv(s, 100, MSG_PEEK), "abcd");
  EXPECT_EQ(b.recv(s, 2), "ab");
  EXPECT_EQ(b.recv(s, 100, MSG_WAITALL), "cd");  // at the mark, whatever MSG_WAITALL asks
  EXPECT_EQ(b.ioctl(s, SIOCATMARK), 1);
  EXPECT_EQ(b.recv(s, 100, MSG_PEEK), "efg");
  EXPECT_EQ(b.ioctl(s, SIOCATMARK), 1);
  EXPECT_EQ(b.recv(s, 100), "efg");
  EXPECT_EQ(b.ioctl(s, SIOCATMARK), 0);
  EXPECT_EQ(b.recv(s, 1, MSG_OOB), "!EINVAL");
}

TEST_P(Urgent, MessageFlagsSaySo) {
  EXPECT_EQ(a.send(c, "x", MSG_OOB), 1);
  ASSERT_TRUE(there());
  char byte = 0;
  iovec v{&byte, 1};
  msghdr m{};
  m.msg_iov = &v;
  m.msg_iovlen = 1;
  EXPECT_EQ(b.recvmsg(s, m, MSG_OOB), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(m.msg_flags & MSG_OOB, MSG_OOB);
}

TEST_P(Urgent, AloneIsNothingToRead) {
  EXPECT_EQ(a.send(c, "!", MSG_OOB), 1);
  ASSERT_TRUE(there());
  EXPECT_FALSE(b.ready(s) & POLLIN);
  EXPECT_EQ(b.ioctl(s, SIOCATMARK), 1);
  EXPECT_EQ(b.ioctl(s, FIONREAD), 0);
  EXPECT_EQ(b.recv(s, 10, MSG_DONTWAIT), "!EAGAIN");
  EXPECT_EQ(b.ioctl(s, SIOCATMARK), 0);  // the read passed it
  EXPECT_EQ(b.recv(s, 1, MSG_OOB), "!EINVAL");
}

TEST_P(Urgent, NeverTakenIsLeftOutOfTheStream) {
  EXPECT_EQ(a.send(c, "ab", MSG_OOB), 2);
  EXPECT_EQ(a.send(c, "cd"), 2);
  ASSERT_TRUE(there());
  EXPECT_EQ(b.recv(s), "a");
  std::string rest;
  while (rest.size() < 2) rest += b.recv(s);
  EXPECT_EQ(rest, "cd");
}

TEST_P(Urgent, InlineKeepsItInItsPlace) {
  EXPECT_EQ(b.setsockopt(s, SOL_SOCKET, SO_OOBINLINE, 1), 0);
  EXPECT_EQ(a.send(c, "ab"), 2);
  EXPECT_EQ(a.send(c, "C", MSG_OOB), 1);
  EXPECT_EQ(a.send(c, "de"), 2);
  ASSERT_TRUE(there());
  while (b.ioctl(s, FIONREAD) < 5) ::usleep(100);
  EXPECT_EQ(b.recv(s, 1, MSG_OOB), "!EINVAL");
  EXPECT_EQ(b.recv(s), "ab");
  EXPECT_EQ(b.ioctl(s, SIOCATMARK), 1);
  EXPECT_EQ(b.recv(s), "Cde");
  EXPECT_EQ(b.ioctl(s, SIOCATMARK), 0);
}

TEST_P(Urgent, SecondMarkTakesTheFirstsPlace) {
  EXPECT_EQ(a.send(c, "a", MSG_OOB), 1);
  ASSERT_TRUE(there());
  EXPECT_EQ(a.send(c, "b", MSG_OOB), 1);
  for (int i = 0; i < 50'000 && b.recv(s, 1, MSG_OOB | MSG_PEEK) != "b"; ++i) ::usleep(100);
  EXPECT_EQ(b.recv(s, 1, MSG_OOB), "b");
  EXPECT_EQ(b.recv(s, 10, MSG_DONTWAIT), "!EAGAIN");  // neither is data
}

TEST_P(Urgent, SecondMarkMakesDataOfTheFirstBehindOthers) {
  EXPECT_EQ(a.send(c, "xa", MSG_OOB), 2);
  ASSERT_TRUE(there());
  EXPECT_EQ(a.send(c, "yb", MSG_OOB), 2);
  for (int i = 0; i < 50'000 && b.recv(s, 1, MSG_OOB | MSG_PEEK) != "b"; ++i) ::usleep(100);
  EXPECT_EQ(b.recv(s), "xay");
  EXPECT_EQ(b.recv(s, 1, MSG_OOB), "b");
}

TEST_P(Urgent, SignalGoesToTheOwner) {
  struct sigaction action{};
  action.sa_handler = [](int) { ++g_signals; };
  struct sigaction before{};
  ::sigaction(SIGURG, &action, &before);
  g_signals = 0;
  EXPECT_EQ(b.fcntl(s, F_GETOWN), 0);
  EXPECT_EQ(a.send(c, "n", MSG_OOB), 1);
  ASSERT_TRUE(there());
  EXPECT_EQ(g_signals, 0);  // nobody's
  EXPECT_EQ(b.recv(s, 1, MSG_OOB), "n");
  EXPECT_EQ(b.fcntl(s, F_SETOWN, ::getpid()), 0);
  EXPECT_EQ(b.fcntl(s, F_GETOWN), ::getpid());
  EXPECT_EQ(b.fcntl(s, F_SETOWN, 0x3ffffffe), -ESRCH);
  EXPECT_EQ(a.send(c, "y", MSG_OOB), 1);
  ASSERT_TRUE(there());
  for (int i = 0; i < 20'000 && g_signals == 0; ++i) ::usleep(100);
  EXPECT_EQ(g_signals, 1);
  ::sigaction(SIGURG, &before, nullptr);
}

TEST_P(Urgent, ErrorsOfSending) {
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  EXPECT_EQ(a.send(c, "x", MSG_OOB), -EPIPE);
  ASSERT_TRUE(b.await(s, POLLRDHUP));
  EXPECT_EQ(b.recv(s, 1, MSG_OOB), "!EINVAL");
}

}  // namespace
}  // namespace vireo::test
