// Changes are told of, and those of iptables-legacy are found.
#include <gtest/gtest.h>
#include <poll.h>

#include "stack/filter/filter.h"
#include "tests/unit/filter/rules.h"

namespace vireo::filter {
namespace {

bool is_told(const Filter& f) {
  pollfd p{.fd = f.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&p, 1, 2000) == 1;
}

TEST(Follow, ANewRule) {
  enter_new_namespace();
  Filter f;
  EXPECT_TRUE(f.is_empty());
  set_nft("table inet f { chain in { type filter hook input priority 0; tcp dport 80 drop\n}\n}");
  ASSERT_TRUE(is_told(f));
  EXPECT_TRUE(f.process());
  EXPECT_FALSE(f.is_empty());
  EXPECT_NE(judged(*f.rules(), tcp_listener(80)), "");
  EXPECT_FALSE(f.process());
  run("nft flush ruleset");
  ASSERT_TRUE(is_told(f));
  EXPECT_TRUE(f.process());
  EXPECT_TRUE(f.is_empty());
}

TEST(Follow, ANewRuleOfLegacy) {
  enter_new_namespace();
  Clock::calibrate();
  Filter f;
  run("iptables-legacy -A INPUT -p tcp --dport 80 -j DROP");
  const Instant now = Clock::now();
  f.look_at_legacy(now);
  EXPECT_TRUE(f.is_empty()) << "it was looked at a moment ago";
  f.look_at_legacy(now + Duration::s(2));
  ASSERT_TRUE(is_told(f));
  EXPECT_TRUE(f.process());
  EXPECT_NE(judged(*f.rules(), tcp_listener(80)), "");
  EXPECT_FALSE(f.process());
}

TEST(Follow, CountersOfLegacyAreNoChange) {
  enter_new_namespace();
  Clock::calibrate();
  run("iptables-legacy -A OUTPUT -d 127.0.0.1 -j ACCEPT");
  Filter f;
  const uint32_t before = f.generation();
  run("bash -c 'echo > /dev/udp/127.0.0.1/9'");
  f.look_at_legacy(Clock::now() + Duration::s(2));
  EXPECT_FALSE(f.process());
  EXPECT_EQ(f.generation(), before);
}

}  // namespace
}  // namespace vireo::filter
