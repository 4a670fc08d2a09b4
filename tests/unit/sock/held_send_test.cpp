// The short way of small writes that join others, and all that must not take it.
#include <netinet/tcp.h>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

class HeldSend : public testing::Test {
 protected:
  static Handle handle(int fd) { return fd_table().find(fd); }
  /// As if the thread's latest send() had been held back there.
  static bool held(Handle h, const void* data, size_t n, int flags = 0) {
    sock::t_nagled = h.file;
    EXPECT_TRUE(sock::may_append_nagled_here(h));
    return sock::send_nagled(h, data, n, flags);
  }
  static bool held(int fd, const std::string& bytes, int flags = 0) {
    return held(handle(fd), bytes.data(), bytes.size(), flags);
  }
  std::pair<int, int> connection() {
    const int l = b.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(b.bind(l, 0), 0);
    EXPECT_EQ(b.listen(l), 0);
    const int c = a.socket(AF_INET, SOCK_STREAM);
    const auto to = address(b.host(), port_of(b.getsockname(l)));
    EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
    const int s = b.accept(l);
    b.close(l);
    EXPECT_TRUE(a.is_carried(c) && b.is_carried(s));
    return {c, s};
  }
  void TearDown() override { sock::t_nagled = nullptr; }
  Api a{hosts().a, Side::kVireo}, b{hosts().b, Side::kVireo};
};

// As preload does: the short way where it says that it may be, else the whole one.
TEST_F(HeldSend, AStreamOfSmallWritesArrivesInOrder) {
  const auto [c, s] = connection();
  std::string all, got;
  unsigned offered = 0, short_ways = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string piece = std::to_string(i) + ",";
    all += piece;
    const bool may = sock::may_append_nagled_here(handle(c));
    offered += may;
    if (may && sock::send_nagled(handle(c), piece.data(), piece.size(), 0)) {
      ++short_ways;
    } else {
      ASSERT_EQ(a.send(c, piece), ssize_t(piece.size()));
    }
  }
  EXPECT_GT(short_ways, 2000U);
  EXPECT_GT(offered, short_ways) << "none was too much for its segment";
  while (got.size() < all.size()) {
    const std::string part = b.recv(s);
    ASSERT_FALSE(part.empty() || part[0] == '!') << part;
    got += part;
  }
  EXPECT_EQ(got, all);
  a.close(c);
  b.close(s);
}

TEST_F(HeldSend, NothingToJoinIsAskedOfSend) {
  const auto [c, s] = connection();
  EXPECT_FALSE(held(c, "nothing waits"));
  EXPECT_FALSE(sock::may_append_nagled_here(handle(c))) << "and not asked for again";
  EXPECT_EQ(a.setsockopt(c, IPPROTO_TCP, TCP_NODELAY, 1), 0);
  EXPECT_EQ(a.send(c, "left"), 4);
  EXPECT_FALSE(held(c, "at once"));
  EXPECT_EQ(b.recv(s), "left");
  a.close(c);
  b.close(s);
}

TEST_F(HeldSend, WhatSendMustJudgeIsAskedOfIt) {
  const auto [c, s] = connection();
  std::string sent;
  // An ACK may come between: then nothing waits, which this test is not about.
  bool joined = false;
  for (int i = 0; i < 100 && !joined; ++i) {
    EXPECT_EQ(a.send(c, "ab"), 2);
    joined = held(c, "cd");
    sent += joined ? "abcd" : "ab";
  }
  ASSERT_TRUE(joined);
  const Handle h = handle(c);
  for (const int flag : {MSG_OOB, MSG_MORE, MSG_FASTOPEN, MSG_ZEROCOPY})
    EXPECT_FALSE(held(h, "no", 2, flag));
  EXPECT_FALSE(held(h, nullptr, 2));
  EXPECT_FALSE(held(h, "no", 0));
  EXPECT_FALSE(held(h, std::string(70'000, 'n').data(), 70'000));
  EXPECT_EQ(a.shutdown(c, SHUT_WR), 0);
  EXPECT_FALSE(held(h, "no", 2));
  EXPECT_EQ(a.send(c, "no", MSG_NOSIGNAL), -EPIPE);
  std::string got;
  for (std::string part = b.recv(s); !part.empty(); part = b.recv(s)) got += part;
  EXPECT_EQ(got, sent);
  a.close(c);
  EXPECT_FALSE(held(h, "no", 2)) << "closed";
  b.close(s);
}

// A File that a thread remembers may be another description by now.
TEST_F(HeldSend, OtherSocketsAreAskedOfSend) {
  const int u = a.socket(AF_INET, SOCK_DGRAM), to = b.socket(AF_INET, SOCK_DGRAM);
  ASSERT_EQ(b.bind(to, 0), 0);
  const auto there = address(b.host(), port_of(b.getsockname(to)));
  ASSERT_EQ(a.connect(u, sockaddr_of(there), length(there)), 0);
  const int l = a.socket(AF_INET, SOCK_STREAM), fresh = a.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(a.bind(l, 0), 0);
  ASSERT_EQ(a.listen(l), 0);
  ASSERT_TRUE(a.is_carried(u));
  ASSERT_TRUE(a.is_listening_carried(l));
  for (const int fd : {u, l, fresh}) EXPECT_FALSE(held(fd, "no"));
  EXPECT_EQ(a.send(u, "yes"), 3);
  EXPECT_EQ(b.recv(to), "yes");
  for (const int fd : {u, l, fresh}) a.close(fd);
  b.close(to);
}

}  // namespace
}  // namespace vireo::test
