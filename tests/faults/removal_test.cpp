// A device that is gone: TCP connections end with ENETDOWN, datagrams and listeners go on by the
// kernel's socket beneath, whoever sleeps is woken. Whatever it was doing then.
#include <poll.h>

#include "tests/faults/traffic.h"

namespace vireo::test {
namespace {

constexpr Duration kSoon = Duration::ms(1);
constexpr Duration kLook = Duration::ms(1002);  // of the helper

class Removal : public testing::TestWithParam<Backend> {
 protected:
  Removal() : w({.backend = GetParam()}) {}
  void remove(int side = 0) { softnic_remove(w.nic(side)); }
  auto removing() {
    return [this] { remove(); };
  }
  std::string error_of(int fd) {
    const int e = w.a().getsockopt(fd, SOL_SOCKET, SO_ERROR);
    return e > 0 ? strerrorname_np(e) : "0";
  }
  /// The way of the packets is the kernel's alone by now, at both ends.
  void expect_new_ones_are_the_kernels() {
    Api kernel(w.b().host(), Side::kKernel);
    const int l = kernel.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(kernel.bind(l, 9002), 0);
    EXPECT_EQ(kernel.listen(l), 0);
    const int d = w.keep(0, w.a().socket(AF_INET, SOCK_STREAM));
    w.connect_to(0, d, 9002);
    EXPECT_FALSE(w.a().is_carried(d));
    EXPECT_EQ(kernel.close(l), 0);
  }
  World w;
};
INSTANTIATE_TEST_SUITE_P(, Removal, testing::ValuesIn(kBackends),
                         testing::PrintToStringParamName());

/// The traffic on, then the fault at a; the programs there hear of it, b's hear nothing.
void strike_traffic(World& w, const std::function<void()>& strike) {
  Traffic t(w);
  auto& bulk = t.add<Bulk>(uint16_t{9001}, size_t{5'000'000});
  auto& pingpong = t.add<PingPong>(uint16_t{9002}, 1'000'000U);
  auto& churn = t.add<Churn>(uint16_t{9003}, 1'000'000U);
  auto& datagrams = t.add<Datagrams>(uint16_t{9004}, 1'000'000U);
  const auto step = [&] { return t.step(); };
  const auto flows = [&] { return bulk.received(0) > 200'000 && datagrams.answered() > 0; };
  EXPECT_TRUE(w.run(step, flows, Duration::ms(5)));
  EXPECT_LT(bulk.received(0), size_t{5'000'000});
  strike();
  const auto told = [&] { return bulk.failed(0) && pingpong.failed(0); };
  EXPECT_TRUE(w.run(step, told, kLook * 2));
  w.run(step, [] { return false; }, Duration::ms(100));
  const std::set<std::string> expected{"ENETDOWN"}, none;
  EXPECT_EQ(bulk.errors[0], expected);
  EXPECT_EQ(pingpong.errors[0], expected);
  EXPECT_EQ(datagrams.errors[0], none);
  for (const Load* l : std::initializer_list<Load*>{&bulk, &pingpong, &churn, &datagrams}) {
    EXPECT_EQ(l->wrong, 0U);
    EXPECT_EQ(l->errors[1], none);
  }
  EXPECT_TRUE(w.engine(0).ports().all().front()->dead);
  EXPECT_FALSE(w.engine(1).ports().all().front()->dead);
}

TEST_P(Removal, UnderTraffic) { strike_traffic(w, removing()); }

TEST_P(Removal, AfterTheQueuePairFailedTooOften) {
  strike_traffic(w, [&] {
    softnic_set_link(w.nic(1), false);  // nothing comes: what is sent is all that can succeed
    softnic_fail_sends(w.nic(0), 1'000'000, IBV_WC_GENERAL_ERR);
  });
  EXPECT_EQ(w.engine(0).stats().queue_restarts.get(), 4U);
  EXPECT_GT(w.engine(0).stats().tx_refused.get(), 0U);
}

TEST_P(Removal, OfADeviceThatStandsStill) {
  strike_traffic(w, [&] {
    softnic_hold(w.nic(0), true);
    w.pass(Duration::us(200));
    remove();
    softnic_hold(w.nic(0), false);
  });
}

// ---- who sleeps

TEST_P(Removal, WakesRecv) {
  const int c = w.connection(9001).first;
  w.begin_call();
  w.while_asleep(removing(), Duration::ms(100));
  EXPECT_EQ(w.a().recv(c, 10), "!ENETDOWN");
  EXPECT_LE(w.slept(), Duration::ms(100) + kSoon);
  EXPECT_EQ(w.a().recv(c, 10), "") << "once";
  EXPECT_EQ(w.a().send(c, "x", MSG_NOSIGNAL), -EPIPE);
}

TEST_P(Removal, WakesRecvWhenItsEventIsLost) {
  const int c = w.connection(9001).first;
  w.begin_call();
  w.while_asleep(
      [&] {
        softnic_lose_events(w.nic(0), 1);
        remove();
      },
      Duration::ms(100));
  EXPECT_EQ(w.a().recv(c, 10), "!ENETDOWN");
  EXPECT_LE(w.slept(), Duration::ms(100) + kLook);
}

TEST_P(Removal, WakesSend) {
  const int c = w.connection(9001).first;
  const std::string much(100'000, 'x');
  while (w.a().send(c, much, MSG_DONTWAIT) > 0) w.pass(Duration::ms(1));
  w.begin_call();
  w.while_asleep(removing(), Duration::ms(100));
  EXPECT_EQ(w.a().send(c, much), -ENETDOWN);
  EXPECT_LE(w.slept(), Duration::ms(101) + kSoon);
}

TEST_P(Removal, WakesConnect) {
  const int c = w.keep(0, w.a().socket(AF_INET, SOCK_STREAM));
  w.stop(1, true);  // nobody answers
  w.listener(1, 9001);
  w.begin_call();
  w.while_asleep(removing(), Duration::ms(100));
  const auto to = address(w.b().host(), 9001);
  EXPECT_EQ(w.a().connect(c, sockaddr_of(to), length(to)), -ENETDOWN);
  EXPECT_LE(w.slept(), Duration::ms(100) + kSoon);
}

TEST_P(Removal, WakesEpoll) {
  const int c = w.connection(9001).first;
  Mux m(w.a());
  const int e = m.create();
  EXPECT_EQ(m.add(e, c, EPOLLIN, 7), 0);
  w.begin_call();
  w.while_asleep(removing(), Duration::ms(100));
  epoll_event got{};
  EXPECT_EQ(m.wait(e, &got, 1, -1), 1);
  EXPECT_EQ(bits_text(got.events), "IN|ERR|HUP");
  EXPECT_LE(w.slept(), Duration::ms(100) + kSoon);
  EXPECT_EQ(error_of(c), "ENETDOWN");
  EXPECT_EQ(m.close(e), 0);
}

// ---- what goes on by the kernel

TEST_P(Removal, OfAnIdleDevice) {
  const auto [c, s] = w.connection(9001);
  w.close(0, c);
  w.close(1, s);
  w.pass(Duration::s(2));
  remove();
  expect_new_ones_are_the_kernels();
}

TEST_P(Removal, WhileAConnectionIsMade) {
  w.stop(1, true);
  const int c = w.begin_connect(0, 9001);
  remove();
  w.pass(kLook);
  EXPECT_EQ(bits_text(static_cast<uint32_t>(w.a().ready(c))), "IN|OUT|ERR|HUP|RDHUP");
  EXPECT_EQ(error_of(c), "ENETDOWN");
  EXPECT_EQ(error_of(c), "0");
}

TEST_P(Removal, WithAListener) {
  const int l = w.listener(0, 9001);
  const int early = w.begin_connect(1, 9001);
  w.pass(Duration::ms(1));
  EXPECT_EQ(w.a().ready(l), POLLIN);
  remove();
  w.pass(kLook);
  // Who was in the queue is handed over, as one that was reset meanwhile.
  const int s = w.keep(0, w.a().accept(l, SOCK_NONBLOCK));
  EXPECT_EQ(w.a().recv(s, 10), "!ENETDOWN");
  EXPECT_EQ(w.a().accept(l), -EAGAIN);
  // Others come by the kernel.
  Api kernel(w.b().host(), Side::kKernel);
  const int k = kernel.socket(AF_INET, SOCK_STREAM);
  const auto to = address(w.a().host(), 9001);
  EXPECT_EQ(kernel.connect(k, sockaddr_of(to), length(to)), 0);
  const int t = w.keep(0, w.a().accept(l));
  EXPECT_FALSE(w.a().is_carried(t));
  EXPECT_EQ(kernel.close(k), 0);
  EXPECT_EQ(w.b().ready(early) & POLLERR, 0);
}

TEST_P(Removal, WithAConnectionHalfOpen) {
  w.listener(0, 9001);
  w.begin_connect(1, 9001);
  softnic_set_link(w.nic(1), false);  // b's ACK is lost
  w.pass(Duration::ms(1));
  remove();
  w.pass(kLook);
  EXPECT_EQ(w.engine(0).census().connections, 0U);
}

TEST_P(Removal, WithConnectionsThatTheProgramHasClosed) {
  const auto [c, s] = w.connection(9001);
  const auto [c2, s2] = w.connection(9002);
  EXPECT_EQ(w.a().send(c, "unacknowledged"), 14);
  softnic_set_link(w.nic(1), false);
  w.close(0, c);  // FIN-WAIT-1
  w.close(0, c2);
  remove();
  w.pass(kLook);
  EXPECT_EQ(w.engine(0).census().connections, 0U) << "orphans of a lost device are over";
}

TEST_P(Removal, DatagramsGoOnByTheKernel) {
  const int u = w.udp(0, 9001);
  Api kernel(w.b().host(), Side::kKernel);
  const int k = kernel.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(kernel.bind(k, 9001), 0);
  const auto to = address(w.b().host(), 9001);
  remove();
  w.pass(kLook);
  EXPECT_EQ(w.a().sendto(u, "by the kernel", to), 13);
  EXPECT_EQ(kernel.recv(k, 100), "by the kernel");
  const auto back = address(w.a().host(), 9001);
  EXPECT_EQ(kernel.sendto(k, "and back", back), 8);
  EXPECT_TRUE(w.run([] { return false; }, [&] { return (w.a().ready(u) & POLLIN) != 0; }, kLook));
  EXPECT_EQ(w.a().recv(u, 100), "and back");
  EXPECT_EQ(kernel.close(k), 0);
}

TEST_P(Removal, NewSocketsAreTheKernels) {
  const int c = w.connection(9001).first;
  remove();
  w.pass(kLook);
  EXPECT_EQ(w.a().recv(c, 10, MSG_DONTWAIT), "!ENETDOWN");
  expect_new_ones_are_the_kernels();
}

TEST_P(Removal, OfBoth) {
  const auto [c, s] = w.connection(9001);
  remove(0);
  remove(1);
  w.pass(kLook);
  EXPECT_EQ(w.a().recv(c, 10, MSG_DONTWAIT), "!ENETDOWN");
  EXPECT_EQ(w.b().recv(s, 10, MSG_DONTWAIT), "!ENETDOWN");
}

}  // namespace
}  // namespace vireo::test
