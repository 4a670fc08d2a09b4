// A program sleeps in a blocking call, and the device does not tell of what arrives. The helper's
// look bounds the sleep: a second, as long as there are flows.
#include "tests/faults/traffic.h"

namespace vireo::test {
namespace {

constexpr Duration kMax = Duration::ms(1002);  // the helper's look, and a turn

class LostEvents : public testing::TestWithParam<Backend> {
 protected:
  LostEvents() : w({.backend = GetParam()}) {}
  /// While the next call of host a sleeps, its device loses the next event and `what` happens.
  void lose_while_asleep(std::function<void()> what) {
    w.begin_call();
    w.while_asleep(
        [this, what] {
          softnic_lose_events(w.nic(0), 1);
          what();
        },
        Duration::ms(100));
  }
  void expect_bounded() {
    EXPECT_GT(w.slept(), Duration::ms(150)) << "the event was not lost";
    EXPECT_LE(w.slept(), kMax + Duration::ms(100));
  }
  World w;
};
INSTANTIATE_TEST_SUITE_P(, LostEvents, testing::ValuesIn(kBackends),
                         testing::PrintToStringParamName());

TEST_P(LostEvents, AnEventWakesAtOnce) {
  const auto [c, s] = w.connection(9001);
  w.begin_call();
  w.while_asleep([&] { EXPECT_EQ(w.b().send(s, "hello"), 5); }, Duration::ms(100));
  EXPECT_EQ(w.a().recv(c, 10), "hello");
  EXPECT_LE(w.slept(), Duration::ms(101));
}

TEST_P(LostEvents, Recv) {
  const auto [c, s] = w.connection(9001);
  lose_while_asleep([&] { EXPECT_EQ(w.b().send(s, "hello"), 5); });
  EXPECT_EQ(w.a().recv(c, 10), "hello");
  expect_bounded();
}

TEST_P(LostEvents, RecvOfADatagram) {
  const int u = w.keep(0, w.a().socket(AF_INET, SOCK_DGRAM));
  EXPECT_EQ(w.a().bind(u, 9001), 0);
  const int v = w.udp(1, 9001);
  w.connect_to(1, v, 9001);
  lose_while_asleep([&] { EXPECT_EQ(w.b().send(v, "hello"), 5); });
  EXPECT_EQ(w.a().recv(u, 10), "hello");
  expect_bounded();
}

TEST_P(LostEvents, Accept) {
  const int l = w.listener(0, 9001, SOCK_STREAM);
  lose_while_asleep([&] { w.begin_connect(1, 9001); });
  w.keep(0, w.a().accept(l));
  expect_bounded();
}

TEST_P(LostEvents, Connect) {
  w.listener(1, 9001);
  const int c = w.keep(0, w.a().socket(AF_INET, SOCK_STREAM));
  softnic_lose_events(w.nic(0), 1);
  w.begin_call();
  w.connect_to(0, c, 9001);
  EXPECT_LE(w.slept(), kMax);
}

TEST_P(LostEvents, EpollWait) {
  const auto [c, s] = w.connection(9001);
  Mux m(w.a());
  const int e = m.create();
  EXPECT_EQ(m.add(e, c, EPOLLIN, 7), 0);
  lose_while_asleep([&] { EXPECT_EQ(w.b().send(s, "hello"), 5); });
  epoll_event got{};
  EXPECT_EQ(m.wait(e, &got, 1, -1), 1);
  EXPECT_EQ(got.data.u64, 7U);
  expect_bounded();
  EXPECT_EQ(m.close(e), 0);
}

// The lost event was of a frame for another socket: the sleeper goes on sleeping, and is told at
// once of the next one, which is for it. The helper's look has armed the device again.
TEST_P(LostEvents, TheNextEventIsTold) {
  const auto [c, s] = w.connection(9001);
  const auto [c2, s2] = w.connection(9002);
  w.begin_call();
  Instant said;
  w.while_asleep([&] {
    softnic_lose_events(w.nic(0), 1);
    EXPECT_EQ(w.b().send(s2, "for another"), 11);
    w.while_asleep(
        [&, s] {
          said = w.now();
          EXPECT_EQ(w.b().send(s, "hello"), 5);
        },
        Duration::ms(1300));
  });
  EXPECT_EQ(w.a().recv(c, 10), "hello");
  EXPECT_LE(w.now() - said, Duration::ms(1));
  EXPECT_EQ(w.a().recv(c2, 20, MSG_DONTWAIT), "for another");
}

// Traffic of calls that sleep, while every other event is lost: slow, and right.
TEST_P(LostEvents, EveryOtherOne) {
  const auto [c, s] = w.connection(9001);
  const Instant began = w.now();
  for (int i = 0; i < 20; ++i) {
    const std::string text = std::to_string(i);
    w.while_asleep([&] {
      if (i % 2 == 0) softnic_lose_events(w.nic(0), 1);
      EXPECT_EQ(w.b().send(s, text), static_cast<ssize_t>(text.size()));
    });
    EXPECT_EQ(w.a().recv(c, 10), text);
  }
  EXPECT_LE(w.now() - began, kMax * 10 + Duration::ms(50));
}

}  // namespace
}  // namespace vireo::test
