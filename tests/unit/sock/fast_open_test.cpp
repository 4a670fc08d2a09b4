// TCP Fast Open as programs ask for it (RFC 7413; tcp(7) TCP_FASTOPEN, MSG_FASTOPEN): the same
// script on the kernel's sockets and on ours.
#include <netinet/tcp.h>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class FastOpen : public BothSides {
 protected:
  /// A listener that takes data on SYNs, and where it listens.
  int listening(int domain, sockaddr_storage& to) {
    const int l = b.socket(domain, SOCK_STREAM);
    EXPECT_EQ(b.setsockopt(l, IPPROTO_TCP, TCP_FASTOPEN, 5), 0);
    EXPECT_EQ(domain == AF_INET6 ? b.bind6(l, 0) : b.bind(l, 0), 0);
    EXPECT_EQ(b.listen(l), 0);
    EXPECT_EQ(b.is_listening_carried(l), ours());
    const uint16_t port = port_of(b.getsockname(l));
    to = domain == AF_INET6 ? address6(b.host(), port) : address(b.host(), port);
    return l;
  }
  static bool had_syn_data(Api& api, int fd) {
    tcp_info info{};
    socklen_t n = sizeof info;
    EXPECT_EQ(api.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n), 0);
    return (info.tcpi_options & TCPI_OPT_SYN_DATA) != 0;
  }
  /// The connection of `c`, whose first word is `word`, to its end. @return whether the SYN had it.
  bool serve(int l, int c, const std::string& word) {
    const int s = b.accept(l);
    EXPECT_GE(s, 0);
    EXPECT_EQ(b.recv(s), word);
    EXPECT_EQ(b.send(s, "yes"), 3);
    EXPECT_EQ(a.recv(c), "yes");
    const bool had = had_syn_data(b, s);
    EXPECT_EQ(had_syn_data(a, c), had);
    EXPECT_EQ(a.is_carried(c), ours());
    EXPECT_EQ(a.close(c), 0);
    EXPECT_EQ(b.recv(s), "");
    EXPECT_EQ(b.close(s), 0);
    return had;
  }
  /// Whoever asks for the first time has a cookie after it.
  void learn_cookie(int domain, int l, const sockaddr_storage& to) {
    const int c = a.socket(domain, SOCK_STREAM);
    EXPECT_EQ(a.sendto(c, "first", to, MSG_FASTOPEN), 5);
    serve(l, c, "first");
  }
};
INSTANTIATE_TEST_SUITE_P(Sides, FastOpen, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

TEST_P(FastOpen, ASendThatConnectsGoesWithTheSyn) {  // RFC 7413 §4.2.1; MSG_FASTOPEN
  for (const int domain : {AF_INET, AF_INET6}) {
    sockaddr_storage to;
    const int l = listening(domain, to);
    learn_cookie(domain, l, to);
    for (int i = 0; i < 3; ++i) {
      const int c = a.socket(domain, SOCK_STREAM);
      EXPECT_EQ(a.sendto(c, "again", to, MSG_FASTOPEN), 5);
      EXPECT_TRUE(serve(l, c, "again"));
    }
    const int c = a.socket(domain, SOCK_STREAM);  // the ordinary way stays ordinary
    ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
    EXPECT_EQ(a.send(c, "plain"), 5);
    EXPECT_FALSE(serve(l, c, "plain"));
    b.close(l);
  }
}

TEST_P(FastOpen, AConnectMayWaitForTheFirstWrite) {  // TCP_FASTOPEN_CONNECT
  for (const int domain : {AF_INET, AF_INET6}) {
    sockaddr_storage to, peer;
    const int l = listening(domain, to);
    learn_cookie(domain, l, to);
    const int c = a.socket(domain, SOCK_STREAM);
    ASSERT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1), 0);
    EXPECT_EQ(a.getsockopt(c, IPPROTO_TCP, TCP_FASTOPEN_CONNECT), 1);
    ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
    EXPECT_EQ(a.getpeername(c, peer), -ENOTCONN);
    EXPECT_EQ(a.ready(c) & (POLLIN | POLLOUT), POLLOUT);
    EXPECT_EQ(a.send(c, "later"), 5);
    EXPECT_TRUE(serve(l, c, "later"));
    b.close(l);
  }
}

TEST_P(FastOpen, WithoutACookieThereIsNoDataOnTheSyn) {  // TCP_FASTOPEN_NO_COOKIE: it shows none
  sockaddr_storage to;
  const int l = listening(AF_INET, to);
  const int c = a.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 1), 0);
  EXPECT_EQ(a.sendto(c, "shows none", to, MSG_FASTOPEN), 10);
  EXPECT_FALSE(serve(l, c, "shows none"));
  b.close(l);
}

/// tcp(7) TCP_FASTOPEN_KEY: what was set is told; a socket's own goes before the operator's. What
/// was given out under a key stays good as long as that is the backup.
TEST_P(FastOpen, AListenerHasItsKeys) {
  const std::string first(16, '1'), second(16, '2'), third(16, '3');
  const auto set = [&](int l, const std::string& key) {
    return b.setsockopt(l, IPPROTO_TCP, TCP_FASTOPEN_KEY, key.data(),
                        static_cast<socklen_t>(key.size()));
  };
  const auto get = [&](int l) {
    std::string key(40, 'x');
    auto n = static_cast<socklen_t>(key.size());
    EXPECT_EQ(b.getsockopt(l, IPPROTO_TCP, TCP_FASTOPEN_KEY, key.data(), &n), 0);
    return key.substr(0, n);
  };
  sockaddr_storage to;
  const int l = listening(AF_INET, to);
  for (const size_t n : {0U, 8U, 17U, 33U}) EXPECT_EQ(set(l, std::string(n, '1')), -EINVAL) << n;
  EXPECT_EQ(get(l), "");
  EXPECT_EQ(set(l, first), 0);
  EXPECT_EQ(get(l), first);
  const auto goes_with_the_syn = [&] {
    const int c = a.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(a.sendto(c, "word", to, MSG_FASTOPEN), 4);
    return serve(l, c, "word");
  };
  goes_with_the_syn();  // whatever an earlier test learnt: it knows one of `first` now
  EXPECT_TRUE(goes_with_the_syn());
  EXPECT_EQ(set(l, second + first), 0);
  EXPECT_EQ(get(l), second + first);
  EXPECT_TRUE(goes_with_the_syn());  // and was given one of `second`
  EXPECT_EQ(set(l, third + second), 0);
  EXPECT_TRUE(goes_with_the_syn());
  EXPECT_EQ(set(l, first), 0);
  EXPECT_FALSE(goes_with_the_syn());
  EXPECT_TRUE(goes_with_the_syn());
  b.close(l);
}

TEST_P(FastOpen, WhatCallsAnswerWhenItIsTooLate) {
  sockaddr_storage to;
  const int l = listening(AF_INET, to);
  learn_cookie(AF_INET, l, to);
  const int c = a.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  EXPECT_EQ(a.sendto(c, "late", to, MSG_FASTOPEN), -EISCONN);
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1), -EINVAL);
  EXPECT_EQ(a.send(c, "plain"), 5);
  EXPECT_FALSE(serve(l, c, "plain"));
  b.close(l);
  const int refused = a.socket(AF_INET, SOCK_STREAM);  // nobody listens any more
  EXPECT_EQ(a.sendto(refused, "x", to, MSG_FASTOPEN), -ECONNREFUSED);
  a.close(refused);
}

}  // namespace
}  // namespace vireo::test
