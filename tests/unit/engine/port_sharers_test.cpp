// Who else gets what a key brings, and what becomes of the rules while somebody does.
#include <gtest/gtest.h>

#include "stack/engine/port_sharers.h"
#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr uint16_t kPort = 7000;

/// A socket of another process.
net::DiagSocket other(const char* local, const char* remote = "") {
  net::DiagSocket s;
  s.local = ip(local);
  s.v6 = !s.local.is_v4();
  s.cookie = 99;
  if (*remote != '\0') {
    s.remote = ip(remote);
    s.remote_port = 5000;
  }
  return s;
}
/// A socket of AF_INET6, whatever its address.
net::DiagSocket other6(const char* local, bool v6only = false) {
  net::DiagSocket s = other(local);
  s.v6 = true;
  s.v6only = v6only;
  return s;
}
DemuxKey key(const char* local) {
  return DemuxKey::bound(IpProto::kUdp, ip(local), kPort, !ip(local).is_v4());
}
bool gets(const net::DiagSocket& s, const char* local, IfIndex device = {}) {
  return PortSharers::gets(s, key(local), device);
}

TEST(PortSharers, OfAnAddressWhoIsBoundToIt) {
  EXPECT_TRUE(gets(other("10.0.0.1"), "10.0.0.1"));
  EXPECT_TRUE(gets(other("10.0.0.1", "11.0.0.7"), "10.0.0.1")) << "what its peer sends";
  EXPECT_TRUE(gets(other6("::ffff:10.0.0.1"), "10.0.0.1"));
  EXPECT_TRUE(gets(other("fd00::1"), "fd00::1"));
  EXPECT_FALSE(gets(other("10.0.0.2"), "10.0.0.1"));
  EXPECT_FALSE(gets(other("0.0.0.0"), "10.0.0.1")) << "the kernel prefers the address";
  EXPECT_FALSE(gets(other("::"), "fd00::1"));
}

TEST(PortSharers, OfTheWildcardWhoIsBoundToItOrToAnyAddress) {
  EXPECT_TRUE(gets(other("0.0.0.0"), "0.0.0.0"));
  EXPECT_TRUE(gets(other("10.0.0.1"), "0.0.0.0"));
  EXPECT_TRUE(gets(other("10.0.0.1", "11.0.0.7"), "0.0.0.0"));
  EXPECT_FALSE(gets(other("239.1.2.3"), "0.0.0.0")) << "a group is a key of its own";
  EXPECT_TRUE(gets(other("::"), "0.0.0.0")) << "of both protocols";
  EXPECT_FALSE(gets(other6("::", true), "0.0.0.0"));
  EXPECT_FALSE(gets(other("fd00::1"), "0.0.0.0"));
  EXPECT_TRUE(gets(other("::"), "::"));
  EXPECT_TRUE(gets(other6("::", true), "::"));
  EXPECT_TRUE(gets(other("fd00::1"), "::"));
  EXPECT_FALSE(gets(other("0.0.0.0"), "::"));
  EXPECT_FALSE(gets(other6("::ffff:0.0.0.0"), "::"));
  EXPECT_TRUE(gets(other6("::ffff:0.0.0.0"), "0.0.0.0"));
}

TEST(PortSharers, OfAGroupWhoIsBoundToItOrToTheWildcard) {
  EXPECT_TRUE(gets(other("239.1.2.3"), "239.1.2.3"));
  EXPECT_TRUE(gets(other("239.1.2.3", "11.0.0.7"), "239.1.2.3"));
  EXPECT_TRUE(gets(other("0.0.0.0"), "239.1.2.3")) << "IP_MULTICAST_ALL";
  EXPECT_TRUE(gets(other("::"), "239.1.2.3"));
  EXPECT_FALSE(gets(other6("::", true), "239.1.2.3"));
  EXPECT_FALSE(gets(other("239.1.2.4"), "239.1.2.3"));
  EXPECT_FALSE(gets(other("10.0.0.1"), "239.1.2.3"));
  EXPECT_TRUE(gets(other("::"), "ff15::1"));
  EXPECT_TRUE(gets(other("ff15::1"), "ff15::1"));
  EXPECT_FALSE(gets(other("0.0.0.0"), "ff15::1"));
  EXPECT_FALSE(gets(other("fd00::1"), "ff15::1"));
}

TEST(PortSharers, OfADeviceWhoIsBoundToNoOther) {
  net::DiagSocket s = other("0.0.0.0");
  EXPECT_TRUE(gets(s, "0.0.0.0", IfIndex(3)));
  s.device = IfIndex(3);
  EXPECT_TRUE(gets(s, "0.0.0.0", IfIndex(3)));
  EXPECT_TRUE(gets(s, "0.0.0.0"));
  EXPECT_FALSE(gets(s, "0.0.0.0", IfIndex(4)));
  EXPECT_FALSE(gets(s, "239.1.2.3", IfIndex(4)));
}

class SharedPort : public testing::Test {
 protected:
  static constexpr uint64_t kOurs = 7;
  UdpFlow& open(const char* local, uint64_t cookie = kOurs) {
    const auto u =
        h.engine().udp().open({ip(local), kPort, 0}, {}, false, nullptr, stats, {}, cookie);
    VIREO_ASSERT(u.has_value());
    return **u;
  }
  size_t rules() { return h.link().rules(MemEnd::kA); }
  net::DiagSocket ours() {
    net::DiagSocket s = other("0.0.0.0");
    s.cookie = kOurs;
    return s;
  }
  void bring(const char* to, bool poll_now = true) {
    const FrameSpec spec{
        .from_mac = {2, 0, 0, 0, 0, 9},
        .to_mac = ip(to).is_multicast() ? Mac{0x01, 0x00, 0x5e, 1, 2, 3} : kHostMac,
        .from = {ip("11.0.0.7"), 5000, 0},
        .to = {ip(to), kPort, 0}};
    h.inject(build_frame(spec, Bytes(64)), poll_now);
  }

  Host h;
  SocketStats stats;
};

TEST_F(SharedPort, HasNoRulesAsLongAsAnotherHasIt) {
  UdpFlow& u = open("0.0.0.0");
  ASSERT_TRUE(h.engine().udp().join(u, ip("239.1.2.3"), kEth0));
  const size_t all = rules();
  EXPECT_EQ(all, 2U);
  h.engine().udp().heed_sharers(kPort, {ours()});
  EXPECT_EQ(rules(), all) << "its own socket beneath";
  h.engine().udp().heed_sharers(kPort, {ours(), other("239.1.2.3")});
  EXPECT_EQ(rules(), 1U) << "the group's alone has gone";
  EXPECT_EQ(stats.shared.load(), vireo::SharedPort::kKernel);
  h.engine().udp().heed_sharers(kPort, {ours(), other("0.0.0.0")});
  EXPECT_EQ(rules(), 0U);
  h.engine().udp().heed_sharers(kPort, {ours()});
  EXPECT_EQ(rules(), all);
  EXPECT_EQ(stats.shared.load(), vireo::SharedPort::kNo);
  EXPECT_EQ(h.stats().ports_shared.get(), 2U);
  h.engine().udp().close(u);
  EXPECT_EQ(rules(), 0U);
}

TEST_F(SharedPort, KeepsWhatIsInTheRing) {
  UdpFlow& u = open("0.0.0.0");
  ASSERT_TRUE(h.engine().udp().join(u, ip("239.1.2.3"), kEth0));
  bring("239.1.2.3", false);
  bring("10.0.0.1", false);
  h.engine().udp().heed_sharers(kPort, {ours(), other("0.0.0.0")});
  h.settle();
  EXPECT_EQ(u.queue.buffers(), 2U);
  h.engine().udp().close(u);
}

TEST_F(SharedPort, IsTheKernelsFromTheStartIfAnotherHasIt) {
  h.engine().udp().heed_sharers(kPort, {ours(), other("0.0.0.0")}, kOurs);
  UdpFlow& u = open("0.0.0.0");
  ASSERT_TRUE(h.engine().udp().join(u, ip("239.1.2.3"), kEth0));
  EXPECT_EQ(rules(), 0U);
  h.engine().udp().forget_sharers(kPort);
  EXPECT_EQ(rules(), 2U);
  h.engine().udp().close(u);
}

TEST_F(SharedPort, OfThisProcessThatTheKernelServes) {
  UdpFlow& u = open("0.0.0.0");
  UdpFlow& second = open("0.0.0.0", 8);
  net::DiagSocket beneath = ours();
  beneath.cookie = 8;
  h.engine().udp().heed_sharers(kPort, {ours(), beneath});
  EXPECT_EQ(rules(), 1U);
  h.engine().udp().heed_sharers(kPort, {});  // as SharerWatch tells it
  h.engine().udp().close(second);            // it became the kernel's
  EXPECT_EQ(rules(), 1U);
  h.engine().udp().heed_sharers(kPort, {beneath});
  EXPECT_EQ(rules(), 0U);
  h.engine().udp().close(u);
}

TEST_F(SharedPort, IsNotAskedOfWhoHasItAlone) {
  h.engine().udp().heed_sharers(kPort, {other("0.0.0.0")});
  UdpFlow& u = open("0.0.0.0", 0);
  EXPECT_EQ(rules(), 1U);
  h.engine().udp().close(u);
}

}  // namespace
}  // namespace vireo::test
