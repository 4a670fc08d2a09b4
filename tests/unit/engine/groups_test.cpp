// Who of the sockets of a port hears a group: memberships, their sources, IP_MULTICAST_ALL, peers.
#include <gtest/gtest.h>

#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr uint16_t kPort = 7000;
const IpAddr kGroup = ip("239.1.2.3");
const IpAddr kA = ip("11.0.0.7"), kB = ip("11.0.0.8");

TEST(SourceFilter, Admits) {
  EXPECT_TRUE(SourceFilter{}.admits(kA));
  EXPECT_TRUE(SourceFilter{}.admits_all());
  const SourceFilter only{.includes = true, .sources = {kA}};
  EXPECT_TRUE(only.admits(kA));
  EXPECT_FALSE(only.admits(kB));
  EXPECT_FALSE(only.admits_all());
  const SourceFilter others{.includes = false, .sources = {kA}};
  EXPECT_FALSE(others.admits(kA));
  EXPECT_TRUE(others.admits(kB));
  EXPECT_FALSE(others.admits_all());
  const SourceFilter none{.includes = true, .sources = {}};
  EXPECT_FALSE(none.admits(kA));
  EXPECT_FALSE(none.admits_all());
}

class Groups : public testing::Test {
 protected:
  UdpFlow& open(const char* local = "0.0.0.0", const Endpoint& remote = {}) {
    const auto u = h.engine().udp().open({ip(local), kPort, 0}, remote, false, nullptr, stats);
    VIREO_ASSERT(u.has_value());
    return **u;
  }
  void join(UdpFlow& u, SourceFilter sources = {}) {
    ASSERT_TRUE(h.engine().udp().join(u, kGroup, kEth0, std::move(sources)));
  }
  /// Whether each of them hears what `source` sends. Twice, so that what follows a first datagram
  /// is seen, too.
  std::string heard(const IpAddr& source, std::initializer_list<UdpFlow*> sockets) {
    std::string who;
    for (int i = 0; i < 2; ++i) {
      std::string now;
      const FrameSpec spec{.from_mac = {2, 0, 0, 0, 0, 9},
                           .to_mac = {0x01, 0x00, 0x5e, 1, 2, 3},
                           .from = {source, 5000, 0},
                           .to = {kGroup, kPort, 0}};
      h.inject(build_frame(spec, Bytes(64)));
      for (UdpFlow* u : sockets) {
        now += static_cast<char>('0' + u->queue.buffers());
        while (!u->queue.empty()) UdpFlows::received(*u, *u->queue.pop_front());
      }
      if (i == 1) {
        EXPECT_EQ(now, who);
      }
      who = now;
    }
    return who;
  }
  size_t rules() { return h.link().rules(MemEnd::kA); }

  Host h;
  SocketStats stats;
};

TEST_F(Groups, MembersAndWhoHearsAll) {
  UdpFlow& member = open();
  UdpFlow& guest = open();
  UdpFlow& at_group = open("239.1.2.3");
  UdpFlow& at_other = open("239.1.2.4");
  UdpFlow& at_host = open("10.0.0.1");
  join(member);
  join(at_host);
  EXPECT_EQ(heard(kA, {&member, &guest, &at_group, &at_other, &at_host}), "11100");
  h.engine().udp().hear_all(guest, false, true);
  EXPECT_EQ(heard(kA, {&member, &guest, &at_group, &at_other, &at_host}), "10100");
  join(guest);
  h.engine().udp().hear_all(at_group, false, false);
  EXPECT_EQ(heard(kA, {&member, &guest, &at_group, &at_other, &at_host}), "11000");
  h.engine().udp().leave(member, kGroup, kEth0);
  h.engine().udp().leave(guest, kGroup, kEth0);
  for (UdpFlow* u : {&member, &guest, &at_group, &at_other, &at_host}) h.engine().udp().close(*u);
  EXPECT_EQ(rules(), 0U);
}

TEST_F(Groups, NobodyHearsWhatNobodyWhoCanHearHasJoined) {
  UdpFlow& guest = open();
  UdpFlow& at_host = open("10.0.0.1");
  const size_t before = rules();
  join(at_host);
  EXPECT_EQ(rules(), before) << "the kernel gives it to others of the host, if to anybody";
  join(guest);
  EXPECT_EQ(rules(), before + 1);
  EXPECT_EQ(heard(kA, {&guest, &at_host}), "10");
  h.engine().udp().leave(guest, kGroup, kEth0);
  EXPECT_EQ(rules(), before);
  h.engine().udp().close(guest);
  h.engine().udp().close(at_host);
}

TEST_F(Groups, SourcesOfEachMembership) {
  UdpFlow& only_a = open();
  UdpFlow& not_a = open();
  UdpFlow& all = open();
  join(only_a, {.includes = true, .sources = {kA}});
  join(not_a, {.includes = false, .sources = {kA}});
  join(all);
  EXPECT_EQ(heard(kA, {&only_a, &not_a, &all}), "101");
  EXPECT_EQ(heard(kB, {&only_a, &not_a, &all}), "011");
  join(only_a, {.includes = true, .sources = {kA, kB}});
  EXPECT_EQ(heard(kB, {&only_a, &not_a, &all}), "111");
  join(not_a);
  EXPECT_EQ(heard(kA, {&only_a, &not_a, &all}), "111");
  for (UdpFlow* u : {&only_a, &not_a, &all}) h.engine().udp().close(*u);
}

TEST_F(Groups, ConnectedMembersHearTheirPeer) {
  UdpFlow& connected = open("239.1.2.3", {kA, 5000, 0});
  UdpFlow& free = open();
  join(connected);
  join(free);
  EXPECT_EQ(heard(kA, {&connected, &free}), "11");
  EXPECT_EQ(heard(kB, {&connected, &free}), "01");
  h.engine().udp().close(free);
  EXPECT_EQ(heard(kA, {&connected}), "1");
  EXPECT_EQ(heard(kB, {&connected}), "0");
  h.engine().udp().close(connected);
  EXPECT_EQ(rules(), 0U);
}

/// What others of the host have joined for, the kernel alone knows.
TEST_F(Groups, AGuestBesideNamedSourcesIsTheKernels) {
  UdpFlow& member = open();
  UdpFlow& guest = open();
  const size_t before = rules();
  join(member, {.includes = true, .sources = {kA}});
  EXPECT_EQ(rules(), before);
  EXPECT_EQ(stats.shared.load(), SharedPort::kKernel);
  h.engine().udp().hear_all(guest, false, false);
  EXPECT_EQ(rules(), before + 1);
  EXPECT_EQ(stats.shared.load(), SharedPort::kNo);
  EXPECT_EQ(heard(kA, {&member, &guest}), "10");
  h.engine().udp().close(guest);
  h.engine().udp().close(member);
}

}  // namespace
}  // namespace vireo::test
