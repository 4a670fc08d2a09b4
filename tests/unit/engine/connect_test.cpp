// What an active open asks of the addresses.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

// RFC 9293 §3.9.2 MUST-46. Broadcasts have no route here and stay the kernel's, which refuses them;
// so do groups, before they come to the engine (stack/sock/connection_calls.cpp), and no SYN would
// leave it.
TEST(Connect, IsToOneHost) {
  Host h;
  for (const char* to : {"255.255.255.255", "10.0.0.255"})
    EXPECT_FALSE(h.engine().next_hops().route({.dst = ip(to), .src = {}})) << to;
  Conn owner;
  const Endpoint here{h.address(), 40'000, 0}, group{ip("224.0.0.5"), 80, 0};
  const auto route = h.engine().next_hops().route({.dst = group.addr, .src = {}});
  ASSERT_TRUE(route);
  const auto f =
      h.engine().tcp().connect(*route, here, group, {}, {}, &owner, owner.stats, h.now());
  ASSERT_TRUE(f);
  h.pass(Duration::s(10));
  EXPECT_EQ(h.forget_heard(), 0u);
  h.engine().tcp().close(**f, UniqueFd(), true, h.now());
}

// RFC 9293 §3.9.2 MUST-48, MUST-49: what IP_TOS and IP_TTL say is on the wire, from the SYN on.
TEST(Connect, SaysDscpAndTtlOfTheProgram) {
  Host h;
  Conn owner;
  Peer server(h, "11.0.0.7", 80, 40'000);
  const auto route = h.engine().next_hops().route({.dst = server.here.addr, .src = {}});
  ASSERT_TRUE(route);
  const auto f = h.engine().tcp().connect(*route, server.there, server.here, {{.mss = 1460}},
                                          {.ttl = 7, .tos = 0x28}, &owner, owner.stats, h.now());
  ASSERT_TRUE(f);
  owner.flow = *f;
  h.settle();
  const auto syn = server.hear();
  ASSERT_TRUE(syn && syn->is(kSyn));
  EXPECT_EQ(syn->tos, 0x28);
  EXPECT_EQ(syn->ttl, 7);
  server.ts_ecr = syn->options.ts_val;
  server.say(kSyn | kAck, server.iss, syn->seq + 1, {.options = server.syn_options()});
  const auto ack = server.hear();
  ASSERT_TRUE(ack && ack->is(kAck));
  EXPECT_EQ(ack->tos, 0x28);
  EXPECT_EQ(ack->ttl, 7);
  h.close(owner, true);
}

}  // namespace
}  // namespace vireo::test
