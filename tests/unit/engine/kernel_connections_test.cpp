// When the helper asks the kernel for connections at a listener's port, and when it stops.
#include "stack/engine/kernel_connections.h"

#include <gtest/gtest.h>

namespace vireo::test {
namespace {

constexpr Instant kStart = Instant::from_ns(1'000'000'000'000);

TEST(KernelConnections, NobodyIsSuspectedAtFirst) {
  const KernelConnections k;
  EXPECT_TRUE(k.empty());
  EXPECT_FALSE(k.due(kStart));
}

TEST(KernelConnections, ASuspectedPortIsAskedForAtOnce) {
  KernelConnections k;
  k.suspect(80);
  const auto q = k.due(kStart);
  ASSERT_TRUE(q);
  EXPECT_EQ(q->port, 80);
}

TEST(KernelConnections, WithoutConnectionsItIsOver) {
  KernelConnections k;
  k.suspect(80);
  EXPECT_TRUE(k.answered(*k.due(kStart), false, kStart));
  EXPECT_TRUE(k.empty());
}

TEST(KernelConnections, WithSomeItIsAskedLessAndLessOften) {
  KernelConnections k;
  k.suspect(80);
  Instant now = kStart;
  for (int64_t pause = 1; pause <= 64; pause *= 2) {
    EXPECT_FALSE(k.answered(*k.due(now), true, now));
    EXPECT_FALSE(k.due(now + Duration::s(pause) - Duration::ns(1))) << pause;
    now = now + Duration::s(pause);
    ASSERT_TRUE(k.due(now)) << pause;
  }
  EXPECT_FALSE(k.answered(*k.due(now), true, now));
  EXPECT_FALSE(k.due(now + Duration::s(63)));
  EXPECT_TRUE(k.due(now + Duration::s(64))) << "64 s at most";
}

TEST(KernelConnections, AnAnswerToAnOlderQuestionEndsNothing) {
  KernelConnections k;
  k.suspect(80);
  const auto q = k.due(kStart);
  k.suspect(80);  // the interface was opened again meanwhile
  EXPECT_FALSE(k.answered(*q, false, kStart));
  EXPECT_TRUE(k.due(kStart)) << "asked anew, at once";
}

TEST(KernelConnections, PortsAreAskedForOneByOne) {
  KernelConnections k;
  k.suspect(80);
  k.suspect(443);
  EXPECT_TRUE(k.answered(*k.due(kStart), false, kStart));
  const auto q = k.due(kStart);
  ASSERT_TRUE(q);
  EXPECT_EQ(q->port, 443);
  EXPECT_TRUE(k.answered(*q, false, kStart));
  EXPECT_FALSE(k.due(kStart));
}

TEST(KernelConnections, AnAnswerOfAPortThatIsOverIsIgnored) {
  KernelConnections k;
  EXPECT_FALSE(k.answered({.port = 80, .change = 1}, false, kStart));
  EXPECT_TRUE(k.empty());
}

}  // namespace
}  // namespace vireo::test
