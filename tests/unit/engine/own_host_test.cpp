// What a device brings is judged before a socket hears it: station, VLAN, destination and source,
// as Linux does it. And which connections of the kernel are asked for.
#include "stack/engine/kernel_connections.h"

#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr Mac kOurMac{2, 0, 0, 0, 0, 1};

/// A datagram socket of every address, and one peer.
class Wild : public testing::Test {
 protected:
  void SetUp() override {
    const auto u = h.engine().udp().open({IpAddr(), 7000, 0}, {}, false, this, stats);
    ASSERT_TRUE(u);
    flow = *u;
  }
  void TearDown() override { h.engine().udp().close(*flow); }
  static FrameSpec spec(const char* from = "11.0.0.7", const char* to = "10.0.0.1") {
    return {.from_mac = {2, 0, 0, 0, 0, 2},
            .to_mac = kOurMac,
            .from = {ip(from), 5000, 0},
            .to = {ip(to), 7000, 0}};
  }
  bool hears(const FrameSpec& s) { return hears(build_frame(s, Bytes(64))); }
  bool hears(const Bytes& frame) {
    h.inject(frame);
    if (flow->queue.empty()) return false;
    UdpFlows::received(*flow, *flow->queue.front());
    flow->queue.pop_front();
    return true;
  }

  Host h;
  UdpFlow* flow = nullptr;
  SocketStats stats;
};

TEST_F(Wild, HearsWhatIsForAnAddressOfTheHost) {
  EXPECT_TRUE(hears(spec()));
  EXPECT_TRUE(hears(spec("fd00::7", "fd00::1")));
  for (const char* to : {"10.0.0.255", "255.255.255.255"})  // which a device may bring, too
    EXPECT_TRUE(hears(spec("11.0.0.7", to))) << to;
  for (const char* to : {"10.0.0.9", "12.0.0.1", "127.0.0.1"})
    EXPECT_FALSE(hears(spec("11.0.0.7", to))) << to;
  for (const char* to : {"fd00::2", "::1", "fd11::1"})
    EXPECT_FALSE(hears(spec("fd00::7", to))) << to;
  EXPECT_TRUE(hears(spec())) << "afterwards";
}

TEST_F(Wild, HearsNothingFromNowhere) {
  for (const char* from : {"127.0.0.1", "10.0.0.1", "224.0.0.5", "255.255.255.255", "0.0.0.0"})
    EXPECT_FALSE(hears(spec(from))) << from;
  for (const char* from : {"::1", "ff02::9", "fd00::1", "::"})
    EXPECT_FALSE(hears(spec(from, "fd00::1"))) << from;
}

/// In IPv6's form an IPv4 address would pass for it: in a frame of IPv6 it is nobody's.
TEST_F(Wild, HearsNoIpv4AddressInIpv6) {
  Bytes frame = build_frame(spec("fd00::7", "fd00::1"), Bytes(64));
  const std::array<uint8_t, 16> mapped = ip("11.0.0.7").bytes();
  const auto source = std::span(frame).subspan(14 + 8, 16);
  uint32_t before = ones_sum(source);
  std::memcpy(source.data(), mapped.data(), 16);
  // The checksum follows, so that nothing but the address speaks against it.
  const uint32_t after = ones_sum(source);
  const auto sum = std::span(frame).subspan(14 + 40 + 6, 2);
  uint32_t s =
      0xffff - (std::to_integer<uint32_t>(sum[0]) << 8 | std::to_integer<uint32_t>(sum[1]));
  while (before >> 16 != 0) before = (before & 0xffff) + (before >> 16);
  s += (0xffff - before) + after;
  while (s >> 16 != 0) s = (s & 0xffff) + (s >> 16);
  s = 0xffff - s;
  sum[0] = std::byte(s >> 8);
  sum[1] = std::byte(s);
  const uint64_t malformed = h.stats().rx_malformed.get();
  EXPECT_FALSE(hears(frame));
  EXPECT_EQ(h.stats().rx_malformed.get(), malformed + 1);
}

TEST_F(Wild, HearsWhatCameToItsStation) {
  FrameSpec s = spec();
  s.to_mac = {2, 0, 0, 0, 0, 9};
  EXPECT_FALSE(hears(s));
  s = spec();
  s.vlan = 5;
  EXPECT_FALSE(hears(s)) << "a VLAN that is not here";
  s.vlan = 0x6000;
  EXPECT_TRUE(hears(s)) << "a priority is no VLAN";
}

TEST_F(Wild, AServerIsNotSpokenToFromNowhere) {
  h.listen(80);
  for (const char* from : {"127.0.0.1", "10.0.0.1", "10.0.0.255", "224.0.0.5"}) {
    Peer p(h, from, 40'000, 80);
    p.syn();
    EXPECT_FALSE(p.hear()) << from;
  }
  EXPECT_EQ(h.engine().census().half_open, 0U);
  Peer good(h, "11.0.0.7", 40'000, 80);
  EXPECT_TRUE(good.connect());
}

TEST(KernelConnections, AreAskedForLessAndLess) {
  KernelConnections k;
  Instant now = Instant::from_ns(1'000'000'000);
  EXPECT_FALSE(k.due(now));
  k.suspect(80);
  int asked = 0;
  for (int s = 0; s < 300; ++s, now = now + Duration::s(1))
    while (const auto q = k.due(now)) {
      EXPECT_EQ(q->port, 80);
      ++asked;
      EXPECT_FALSE(k.answered(*q, true, now));
    }
  EXPECT_EQ(asked, 10) << "at 0, 1, 3, 7, 15, 31, 63, 127, 191, 255 s";
  while (!k.due(now)) now = now + Duration::s(1);
  EXPECT_TRUE(k.answered(*k.due(now), false, now));
  EXPECT_TRUE(k.empty());
}

TEST(KernelConnections, AnAnswerToAnEarlierSuspicionEndsNone) {
  KernelConnections k;
  const Instant now = Instant::from_ns(1'000'000'000);
  k.suspect(80);
  const auto q = k.due(now);
  k.suspect(80);
  EXPECT_FALSE(k.answered(*q, false, now));
  EXPECT_TRUE(k.due(now));
  EXPECT_TRUE(k.answered(*k.due(now), false, now));
}

}  // namespace
}  // namespace vireo::test
