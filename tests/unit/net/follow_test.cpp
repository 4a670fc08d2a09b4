// The mirror follows what others change in the kernel's tables, survives lost notifications, and
// gets neighbours resolved.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "stack/net/lookup.h"
#include "tests/unit/net/lab.h"

namespace vireo::net {
namespace {

using std::chrono::milliseconds;

constexpr const char* kPair = R"(
  for c in all default; do echo 0 > /proc/sys/net/ipv6/conf/$c/accept_dad; done
  ip link add va type veth peer name vb
  ip link set va up; ip link set vb up
  ip addr add 10.1.0.1/24 dev va; ip -6 addr add fd00:1::1/64 dev va nodad)";

Result<NextHop> to(const Snapshot& s, const char* dst) {
  return lookup(s, {.dst = *IpAddr::parse(dst)});
}
bool routed(const Snapshot& s, const char* dst, const char* via) {
  auto n = to(s, dst);
  return n && n->via == *IpAddr::parse(via);
}

/// After `change`, the mirror must satisfy `done` within 50 ms.
void expect_follows(Mirror& m, const char* change,
                    const std::function<bool(const Snapshot&)>& done) {
  ASSERT_TRUE(shell(change)) << change;
  const auto took = until(m, done);
  ASSERT_TRUE(took) << "never seen: " << change;
  EXPECT_LT(*took, milliseconds(50)) << change;
}

TEST(Mirror, FollowsChanges) {
  REQUIRE_ROOT();
  Lab lab;
  lab.run([] {
    ASSERT_TRUE(shell(kPair));
    auto opened = Mirror::open();
    ASSERT_TRUE(opened);
    Mirror& m = **opened;
    const auto refused = [](const char* dst, int code) {
      return [=](const Snapshot& s) { return !to(s, dst) && to(s, dst).error().code == code; };
    };
    const auto via = [](const char* dst, const char* hop) {
      return [=](const Snapshot& s) { return routed(s, dst, hop); };
    };

    expect_follows(m, "ip route add 10.9.0.0/16 via 10.1.0.2", via("10.9.1.1", "10.1.0.2"));
    expect_follows(m, "ip route replace 10.9.0.0/16 via 10.1.0.3", via("10.9.1.1", "10.1.0.3"));
    expect_follows(m, "ip route del 10.9.0.0/16", refused("10.9.1.1", ENETUNREACH));
    expect_follows(m, "ip route add prohibit 10.9.0.0/16", refused("10.9.1.1", EACCES));
    expect_follows(m, "ip -6 route add fd00:9::/64 via fd00:1::2", via("fd00:9::1", "fd00:1::2"));
    expect_follows(m, "ip -6 route append fd00:9::/64 via fd00:1::3", [](const Snapshot& s) {
      LookupKey k{.dst = *IpAddr::parse("fd00:9::1")};
      bool second = false;
      for (uint32_t i = 1; i < 16; ++i) {
        k.flow_hash = i << 28;
        auto n = lookup(s, k);
        second |= n && n->via == *IpAddr::parse("fd00:1::3");
      }
      return second;
    });
    expect_follows(m, "ip -6 route del fd00:9::/64 via fd00:1::2", via("fd00:9::1", "fd00:1::3"));
    expect_follows(m, "ip addr add 10.2.0.1/24 dev va", [](const Snapshot& s) {
      auto n = to(s, "10.2.0.9");
      return n && n->src == *IpAddr::parse("10.2.0.1");
    });
    expect_follows(m, "ip route add 10.8.0.0/16 via 10.1.0.2 src 10.2.0.1",
                   via("10.8.0.1", "10.1.0.2"));
    // The kernel removes this route with its source address, and tells nobody.
    expect_follows(m, "ip addr del 10.2.0.1/24 dev va", refused("10.8.0.1", ENETUNREACH));
    const auto filters = [](uint8_t wanted) {
      return [=](const Snapshot& s) { return s.links->find("va")->rp_filter == wanted; };
    };
    expect_follows(m, "echo 1 > /proc/sys/net/ipv4/conf/va/rp_filter", filters(1));
    expect_follows(m, "echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter", filters(2));
    expect_follows(m, "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter", filters(1));
    expect_follows(m, "echo 0 > /proc/sys/net/ipv4/conf/va/rp_filter", filters(0));
    expect_follows(m, "ip rule add pref 100 to 10.7.0.0/16 blackhole", refused("10.7.1.1", EINVAL));
    expect_follows(m, "ip rule del pref 100", refused("10.7.1.1", ENETUNREACH));
    expect_follows(m, "ip neigh add 10.1.0.7 lladdr 02:00:00:00:00:07 dev va nud reachable",
                   [](const Snapshot& s) {
                     auto n = to(s, "10.1.0.7");
                     return n && n->neighbour == NeighbourState::kReachable &&
                            n->dst_mac == Mac{2, 0, 0, 0, 0, 7};
                   });
    expect_follows(m, "ip neigh change 10.1.0.7 lladdr 02:00:00:00:00:08 dev va nud stale",
                   [](const Snapshot& s) {
                     auto n = to(s, "10.1.0.7");
                     return n && wants_kick(n->neighbour) && n->dst_mac == Mac{2, 0, 0, 0, 0, 8};
                   });
    expect_follows(m, "ip link set va mtu 1400", [](const Snapshot& s) {
      auto n = to(s, "10.1.0.7");
      return n && n->mtu == 1400;
    });
    expect_follows(m, "ip route add 10.6.0.0/16 via 10.1.0.2", via("10.6.0.1", "10.1.0.2"));
    // So do routes of an interface that goes down.
    expect_follows(m, "ip link set va down", refused("10.6.0.1", ENETUNREACH));
    expect_follows(m, "ip link set va up", via("10.1.0.9", "10.1.0.9"));
    expect_follows(m, "ip link del va", refused("10.1.0.9", ENETUNREACH));
  });
}

TEST(Mirror, RecoversFromLostNotifications) {
  REQUIRE_ROOT();
  Lab lab;
  lab.run([] {
    ASSERT_TRUE(shell(kPair));
    auto opened = Mirror::open({.receive_buffer_bytes = 4096});
    ASSERT_TRUE(opened);
    Mirror& m = **opened;
    std::string batch;
    for (int i = 0; i < 10000; ++i)
      batch += fmt::format("route add 10.{}.{}.0/24 via 10.1.0.2\n", 64 + i / 250, i % 250);
    ASSERT_TRUE(shell("ip -batch -", batch));
    const auto count = [](const Snapshot& s) {
      const RouteTable* t = s.routes->find(254, false);
      return t == nullptr ? 0 : t->routes().size();
    };
    EXPECT_TRUE(until(m, [&](const Snapshot& s) { return count(s) == 10001; }));
    EXPECT_GE(m.stats().overruns.load(), 1U);
    ASSERT_TRUE(shell("ip route flush via 10.1.0.2"));
    EXPECT_TRUE(until(m, [&](const Snapshot& s) { return count(s) == 1; }));
  });
}

TEST(Mirror, KickResolvesANeighbourThroughTheKernel) {
  REQUIRE_ROOT();
  Lab peer;
  Lab lab;
  lab.sh(fmt::format("{}; ip link set vb netns {}", kPair, peer.tid()));
  peer.sh(
      "ip link set vb up; ip addr add 10.1.0.2/24 dev vb; ip -6 addr add fd00:1::2/64 dev vb "
      "nodad");
  lab.run([] {
    auto opened = Mirror::open();
    ASSERT_TRUE(opened);
    Mirror& m = **opened;
    for (const char* dst : {"10.1.0.2", "fd00:1::2"}) {
      std::optional<NextHop> hop;
      ASSERT_TRUE(until(m, [&](const Snapshot& s) {
        auto n = to(s, dst);
        const Link* l = n ? s.links->find(n->ifindex) : nullptr;
        if (l != nullptr && has(l->flags, LinkFlags::kRunning)) hop = *n;
        return hop.has_value();
      }));
      EXPECT_FALSE(hop->is_resolved());
      ASSERT_TRUE(m.request_neighbour(hop->ifindex, hop->via));
      const auto took = until(m, [&](const Snapshot& s) { return to(s, dst)->is_resolved(); });
      ASSERT_TRUE(took) << dst;
      EXPECT_LT(*took, milliseconds(50)) << dst;
    }
    EXPECT_EQ(m.stats().kicks.load(), 2U);
    EXPECT_EQ(m.stats().kicks_refused.load(), 0U);
  });
}

TEST(Mirror, NobodyAnswersTheKick) {
  REQUIRE_ROOT();
  Lab lab;
  lab.run([] {
    ASSERT_TRUE(shell(kPair));
    auto opened = Mirror::open();
    ASSERT_TRUE(opened);
    Mirror& m = **opened;
    SnapshotStore::Reader reader(m.store());
    const IfIndex va = reader.snapshot().links->find("va")->index;
    ASSERT_TRUE(m.request_neighbour(va, *IpAddr::parse("10.1.0.66")));
    EXPECT_TRUE(until(
        m,
        [&](const Snapshot& s) { return to(s, "10.1.0.66")->neighbour == NeighbourState::kFailed; },
        milliseconds(8000)));
    // A link that does not exist: the kernel refuses, and the mirror counts it.
    ASSERT_TRUE(m.request_neighbour(IfIndex(9999), *IpAddr::parse("10.1.0.66")));
    until(m, [&](const Snapshot&) { return m.stats().kicks_refused.load() != 0; });
    EXPECT_EQ(m.stats().kicks_refused.load(), 1U);
  });
}

TEST(Mirror, LoadsManyRoutesFastAndLeavesNothingOpen) {
  REQUIRE_ROOT();
  const auto open_fds = [] {
    auto it = std::filesystem::directory_iterator("/proc/self/fd");
    return std::distance(begin(it), end(it));
  };
  const auto before = open_fds();
  {
    Lab lab;
    lab.run([] {
      ASSERT_TRUE(shell(kPair));
      std::string batch;
      for (unsigned i = 0; i < 100'000; ++i)
        batch += fmt::format("route add {}.{}.{}.0/24 via 10.1.0.2\n", 20 + i / 62500,
                             i / 250 % 250, i % 250);
      ASSERT_TRUE(shell("ip -batch -", batch));
      const auto begin = std::chrono::steady_clock::now();
      auto m = Mirror::open();
      const auto took = std::chrono::steady_clock::now() - begin;
      ASSERT_TRUE(m);
      SnapshotStore::Reader reader((*m)->store());
      EXPECT_GE(reader.snapshot().routes->find(254, false)->routes().size(), 100'000U);
      const auto ms = std::chrono::duration_cast<milliseconds>(took);
      RecordProperty("load_ms", static_cast<int>(ms.count()));
      fmt::print("100000 routes loaded in {} ms\n", ms.count());
#ifndef VIREO_DEBUG  // sanitizers cost more than the loading
      EXPECT_LT(ms, milliseconds(1000));
#endif
    });
  }
  EXPECT_EQ(open_fds(), before);
}

}  // namespace
}  // namespace vireo::net
