// What an active open asks of the addresses.
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

// RFC 9293 §3.9.2 MUST-46. Broadcasts have no route here and stay the kernel's, which refuses them;
// so do groups, before they come to the engine (stack/sock/calls.cpp), and no SYN would leave it.
TEST(Connect, IsToOneHost) {
  Host h;
  for (const char* to : {"255.255.255.255", "10.0.0.255"})
    EXPECT_FALSE(h.engine().route({.dst = ip(to), .src = {}})) << to;
  Conn owner;
  const Endpoint here{h.address(), 40'000, 0}, group{ip("224.0.0.5"), 80, 0};
  const auto route = h.engine().route({.dst = group.addr, .src = {}});
  ASSERT_TRUE(route);
  const auto f = h.engine().tcp_connect(*route, here, group, {}, {}, &owner, owner.stats, h.now());
  ASSERT_TRUE(f);
  h.pass(Duration::s(10));
  EXPECT_EQ(h.forget_heard(), 0u);
  h.engine().tcp_close(**f, UniqueFd(), true, h.now());
}

}  // namespace
}  // namespace vireo::test
