// A queue pair that falls into the error state begins anew: what it held is lost, and repaired by
// TCP; no program is told. Whatever the cause, whatever it was doing, whoever sleeps.
#include <algorithm>

#include "tests/faults/traffic.h"

namespace vireo::test {
namespace {

constexpr Duration kLook = Duration::ms(1002);  // of the helper

class Restart : public testing::TestWithParam<Backend> {
 protected:
  Restart() : w({.backend = GetParam()}) {}
  void fail_send(ibv_wc_status status = IBV_WC_GENERAL_ERR) {
    softnic_fail_sends(w.nic(0), 1, status);
  }
  /// By the device's count, which the engine takes once a second.
  uint64_t restarts(int side = 0) {
    w.pass(kLook);
    return w.engine(side).stats().queue_restarts.get();
  }
  /// All traffic to its end, with as many strikes at host a, a bit of it between them.
  void strike_traffic(unsigned strikes, const std::function<void(unsigned)>& strike) {
    Traffic t(w);
    auto& bulk = t.add<Bulk>(uint16_t{9001}, size_t{2'000'000});
    t.add<PingPong>(uint16_t{9002}, 300U);
    t.add<Churn>(uint16_t{9003}, 100U);
    t.add<Datagrams>(uint16_t{9004}, 100U);
    unsigned done = 0;
    t.finish(Duration::s(60), [&] {
      if (done == strikes || bulk.received(0) < (done + 1) * 1'500'000 / strikes) return;
      strike(done++);
    });
    EXPECT_EQ(done, strikes);
    EXPECT_FALSE(w.engine(0).ports().all().front()->dead);
  }
  World w;
};
INSTANTIATE_TEST_SUITE_P(, Restart, testing::ValuesIn(kBackends),
                         testing::PrintToStringParamName());

TEST_P(Restart, ASendEndsInAnError) {
  strike_traffic(1, [&](unsigned) { fail_send(); });
  EXPECT_EQ(restarts(), 1U);
  EXPECT_GT(w.engine(0).stats().tx_refused.get(), 0U);
  EXPECT_EQ(restarts(1), 0U) << "the other host's";
}

TEST_P(Restart, ASendIsNotAllowedToReadItsMemory) {
  strike_traffic(1, [&](unsigned) { fail_send(IBV_WC_LOC_PROT_ERR); });
  EXPECT_EQ(restarts(), 1U);
}

TEST_P(Restart, ASendIsFlushed) {
  strike_traffic(1, [&](unsigned) { fail_send(IBV_WC_WR_FLUSH_ERR); });
  EXPECT_EQ(restarts(), 1U);
}

TEST_P(Restart, ASendThatStandsInARowIsInError) {
  strike_traffic(1, [&](unsigned) {
    softnic_hold(w.nic(0), true);
    w.pass(Duration::us(200));
    fail_send(IBV_WC_LOC_QP_OP_ERR);
    softnic_hold(w.nic(0), false);
  });
  EXPECT_EQ(restarts(), 1U);
}

TEST_P(Restart, ManyTimesAsLongAsSomethingIsCarriedBetween) {
  strike_traffic(40, [&](unsigned) { fail_send(); });  // some before the last was noticed
  EXPECT_GE(restarts(), 15U);
}

TEST_P(Restart, ByAnEventWithItsFlush) {
  strike_traffic(3, [&](unsigned) { softnic_fail_pairs(w.nic(0), true); });
  EXPECT_EQ(restarts(), 3U);
}

TEST_P(Restart, ByTheEventAlone) {
  strike_traffic(1, [&](unsigned) {
    softnic_fail_pairs(w.nic(0), false);
    w.pass(kLook);
  });
  EXPECT_EQ(restarts(), 1U);
}

TEST_P(Restart, AtBothHosts) {
  strike_traffic(5, [&](unsigned) {
    fail_send();
    softnic_fail_sends(w.nic(1), 1, IBV_WC_GENERAL_ERR);
  });
  EXPECT_EQ(restarts(0), 5U);
  EXPECT_EQ(restarts(1), 5U);
}

TEST_P(Restart, FourErrorsInARowAreBorne) {
  const auto [c, s] = w.connection(9001);
  EXPECT_EQ(w.a().send(c, "before"), 6);
  w.pass(Duration::ms(1));
  EXPECT_EQ(w.b().recv(s, 100), "before");
  w.pass(Duration::ms(300));
  softnic_fail_sends(w.nic(0), 4, IBV_WC_GENERAL_ERR);
  EXPECT_EQ(w.a().send(c, "after"), 5);  // and repeated until it leaves
  w.pass(Duration::s(20));
  EXPECT_EQ(w.b().recv(s, 100, MSG_DONTWAIT), "after");
  EXPECT_EQ(restarts(), 4U);
  EXPECT_FALSE(w.engine(0).ports().all().front()->dead);
}

TEST_P(Restart, TheCountBeginsAnewWithWhatIsCarried) {
  const auto [c, s] = w.connection(9001);
  for (int i = 0; i < 5; ++i) {
    softnic_fail_sends(w.nic(0), 4, IBV_WC_GENERAL_ERR);
    EXPECT_EQ(w.a().send(c, "x"), 1);
    w.pass(Duration::s(20));
    EXPECT_EQ(w.b().recv(s, 100, MSG_DONTWAIT), "x");
  }
  EXPECT_EQ(restarts(), 20U);
}

TEST_P(Restart, WhoSleepsInRecvGoesOn) {
  const auto [c, s] = w.connection(9001);
  w.while_asleep(
      [&] {
        softnic_fail_pairs(w.nic(0), true);
        EXPECT_EQ(w.b().send(s, "hello"), 5);
      },
      Duration::ms(100));
  EXPECT_EQ(w.a().recv(c, 10), "hello");
  EXPECT_GE(restarts(), 1U);
}

TEST_P(Restart, WhoSleepsInSendGoesOn) {
  const auto [c, s] = w.connection(9001);
  const std::string much(100'000, 'x');
  size_t sent = 0;
  for (ssize_t n; (n = w.a().send(c, much, MSG_DONTWAIT)) > 0; sent += static_cast<size_t>(n))
    w.pass(Duration::ms(1));
  size_t got = 0;
  const auto read_all = [&] {
    for (std::string part;
         (part = w.b().recv(s, 65536, MSG_DONTWAIT)).size() > 0 && part[0] == 'x';)
      got += part.size();
  };
  w.while_asleep(
      [&] {
        softnic_fail_pairs(w.nic(0), true);
        read_all();
      },
      Duration::ms(100));
  const ssize_t n = w.a().send(c, much);
  EXPECT_GT(n, 0);
  sent += static_cast<size_t>(std::max<ssize_t>(n, 0));
  EXPECT_TRUE(w.run(
      [&] {
        const size_t before = got;
        read_all();
        return got != before;
      },
      [&] { return got == sent; }, Duration::s(10)));
  EXPECT_GE(restarts(), 1U);
}

TEST_P(Restart, OfAnIdleDevice) {
  const auto [c, s] = w.connection(9001);
  w.pass(Duration::ms(300));
  softnic_fail_pairs(w.nic(0), true);
  w.pass(kLook);
  EXPECT_EQ(w.b().send(s, "hello"), 5);
  w.pass(Duration::ms(500));
  EXPECT_EQ(w.a().recv(c, 10, MSG_DONTWAIT), "hello");
}

TEST_P(Restart, ThenRemoved) {
  const int c = w.connection(9001).first;
  softnic_fail_pairs(w.nic(0), true);
  softnic_remove(w.nic(0));
  w.pass(kLook);
  EXPECT_EQ(w.a().recv(c, 10, MSG_DONTWAIT), "!ENETDOWN");
  EXPECT_EQ(w.engine(0).stats().queue_restarts.get(), 0U);
}

}  // namespace
}  // namespace vireo::test
