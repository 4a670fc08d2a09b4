// Which port is kept, for whom and how long (stack/engine/port_leases.h), and how a connection
// begins that follows another of the same two ends.
#include "stack/engine/port_leases.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

const Instant kStart = Instant::from_ns(1'000'000'000);

PortLease lease(const Port& port, uint16_t number, Instant since,
                const char* address = "10.0.0.1") {
  return {
      .local = {ip(address), number, 0}, .port = &port, .holder = {}, .rule = {}, .since = since};
}

TEST(PortLeases, TheOneThatRestedLongestIsTaken) {
  PortLeases leases(4);
  const Port eth0;
  for (uint16_t i = 0; i < 3; ++i)
    leases.keep(lease(eth0, static_cast<uint16_t>(100 + i), kStart + Duration::ms(i)), false);
  EXPECT_FALSE(leases.take(ip("10.0.0.1"), eth0, kStart + PortLeases::kRest - Duration::ns(1)));
  for (uint16_t i = 0; i < 3; ++i) {
    const auto l = leases.take(ip("10.0.0.1"), eth0, kStart + Duration::s(1));
    ASSERT_TRUE(l);
    EXPECT_EQ(l->local.port, 100 + i);
  }
  EXPECT_FALSE(leases.take(ip("10.0.0.1"), eth0, kStart + Duration::s(1)));
}

TEST(PortLeases, AreOfOneAddressAndInterface) {
  PortLeases leases(4);
  const Port eth0, eth1;
  leases.keep(lease(eth0, 100, kStart), false);
  leases.keep(lease(eth1, 101, kStart, "10.0.1.1"), false);
  const Instant later = kStart + Duration::s(1);
  EXPECT_FALSE(leases.take(ip("10.0.0.2"), eth0, later));
  EXPECT_FALSE(leases.take(ip("10.0.0.1"), eth1, later));
  const auto l = leases.take(ip("10.0.1.1"), eth1, later);
  ASSERT_TRUE(l);
  EXPECT_EQ(l->local.port, 101);
}

TEST(PortLeases, ThoseInUseCountToo) {
  PortLeases leases(2);
  const Port eth0;
  leases.keep(lease(eth0, 100, kStart), false);
  leases.keep(lease(eth0, 101, kStart), false);
  EXPECT_FALSE(leases.has_room());
  const Instant later = kStart + Duration::s(1);
  auto first = leases.take(ip("10.0.0.1"), eth0, later);
  auto second = leases.take(ip("10.0.0.1"), eth0, later);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(leases.has_room());
  leases.lost();
  EXPECT_TRUE(leases.has_room());
  leases.keep(std::move(*second), true);
  EXPECT_TRUE(leases.has_room());
  EXPECT_EQ(leases.resting(), 1u);
  EXPECT_FALSE(PortLeases(0).has_room());
}

TEST(PortLeases, GoBackToTheKernelByNumberOrAllOrWithTheirInterface) {
  PortLeases leases(8);
  const Port eth0, eth1;
  for (uint16_t i = 0; i < 4; ++i)
    leases.keep(lease(eth0, static_cast<uint16_t>(100 + i), kStart), false);
  leases.keep(lease(eth1, 200, kStart), false);
  EXPECT_FALSE(leases.give_up(99));
  EXPECT_TRUE(leases.give_up(101));
  EXPECT_EQ(leases.resting(), 4u);
  leases.give_up(eth1);
  EXPECT_EQ(leases.resting(), 3u);
  EXPECT_TRUE(leases.give_up(0));
  EXPECT_FALSE(leases.give_up(0));
  EXPECT_EQ(leases.resting(), 0u);
}

// RFC 6191 §4: the second connection of the same two ends begins beyond the first one's numbers.
TEST(PortLeases, AfterTimeWaitTheNumbersLieBeyond) {
  Host h;
  Peer server(h, "11.0.0.7", 80, 40'000);
  Conn owner;
  const auto route = h.engine().next_hops().route({.dst = server.here.addr, .src = {}});
  ASSERT_TRUE(route);
  Seq32 last(0);
  for (int round = 0; round < 3; ++round) {
    const auto f = h.engine().tcp().connect(*route, server.there, server.here, {{.mss = 1460}}, {},
                                            &owner, owner.stats, h.now());
    ASSERT_TRUE(f);
    owner.flow = *f;
    h.settle();
    const auto syn = server.hear();
    ASSERT_TRUE(syn && syn->is(kSyn));
    if (round > 0) {
      EXPECT_GE(syn->seq - last, 65'537);
    }
    server.ts_ecr = syn->options.ts_val;
    server.say(kSyn | kAck, server.iss, syn->seq + 1, {.options = server.syn_options()});
    ASSERT_TRUE(server.hear());
    h.close(owner);
    h.settle();
    const auto fin = server.hear();
    ASSERT_TRUE(fin && fin->is(kFin | kAck));
    last = fin->seq + 1;
    server.say(kFin | kAck, server.iss + 1, last, {.options = server.options()});
    ASSERT_TRUE(server.hear());
    ASSERT_EQ(h.engine().census().time_waits, 1u);
  }
}

}  // namespace
}  // namespace vireo::test
