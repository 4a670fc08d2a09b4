#include "stack/udp/udp.h"

#include <gtest/gtest.h>

#include "tests/unit/wire/frames.h"

namespace vireo::udp {
namespace {

using namespace testing_frames;

IpAddr ip(const char* s) { return *IpAddr::parse(s); }
constexpr IfIndex kIf{3};

Spec udp_spec(bool v6 = false) {
  Spec s = v6 ? v6_spec() : Spec{};
  s.proto = 17;
  s.payload = {'h', 'e', 'l', 'l', 'o'};
  return s;
}
/// The result, or the drop's number negated, to compare in one line.
std::expected<Datagram, Drop> in(const Bytes& b, ChecksumState c = ChecksumState::kUnknown) {
  return input(wire::parse_frame({reinterpret_cast<const std::byte*>(b.data()), b.size()}), kIf, c);
}

TEST(Udp, DatagramAsItArrived) {
  for (bool v6 : {false, true}) {
    Spec s = udp_spec(v6);
    s.tos = 0x2e;
    s.ttl = 9;
    const Bytes b = make_frame(s);
    const auto d = in(b);
    ASSERT_TRUE(d);
    EXPECT_EQ(d->src, (Endpoint{s.src, 1000, 0}));
    EXPECT_EQ(d->dst, (Endpoint{s.dst, 2000, 0}));
    EXPECT_EQ(d->payload_bytes, 5);
    EXPECT_EQ(b[d->payload_at], 'h');
    EXPECT_EQ(d->ttl, 9);
    EXPECT_EQ(d->tos, 0x2e);
    EXPECT_EQ(d->ifindex, kIf);
    EXPECT_EQ(d->is_v6, v6);
  }
}

TEST(Udp, Checksums) {
  Bytes b = make_frame(udp_spec());
  b.back() ^= 1;
  EXPECT_EQ(in(b).error(), Drop::kBadChecksum);
  EXPECT_TRUE(in(b, ChecksumState::kVerified)) << "the device said it was good";
  Spec none = udp_spec();
  none.l4_checksum = 0;
  EXPECT_TRUE(in(make_frame(none))) << "IPv4: none";
  Spec none6 = udp_spec(true);
  none6.l4_checksum = 0;
  EXPECT_EQ(in(make_frame(none6)).error(), Drop::kBadChecksum);
  EXPECT_EQ(in(make_frame(none6), ChecksumState::kVerified).error(), Drop::kBadChecksum)
      << "whatever the device says";
}

TEST(Udp, SourcesThatCannotBe) {
  const auto from = [](const char* src, const char* dst) {
    Spec s = udp_spec(ip(src).family() == AF_INET6);
    s.src = ip(src);
    s.dst = ip(dst);
    return in(make_frame(s));
  };
  EXPECT_EQ(from("224.0.0.1", "10.0.0.1").error(), Drop::kBadSource);
  EXPECT_EQ(from("255.255.255.255", "10.0.0.1").error(), Drop::kBadSource);
  EXPECT_EQ(from("0.0.0.0", "10.0.0.1").error(), Drop::kBadSource);
  EXPECT_TRUE(from("0.0.0.0", "255.255.255.255")) << "DHCP";
  EXPECT_EQ(from("ff02::1", "2001:db8::1").error(), Drop::kBadSource);
  EXPECT_EQ(from("fe80::7", "ff02::1")->src.scope, 3U);
  Spec s = udp_spec();
  s.dst_port = 0;
  EXPECT_EQ(in(make_frame(s)).error(), Drop::kNoPort);
  s.proto = 6;
  EXPECT_EQ(in(make_frame(s)).error(), Drop::kNotUdp);
}

Datagram datagram(const char* src, uint16_t sport, const char* dst, uint16_t dport,
                  IfIndex at = kIf) {
  Datagram d;
  d.src = {ip(src), sport, 0};
  d.dst = {ip(dst), dport, 0};
  d.is_v6 = !d.dst.addr.is_v4();
  d.ifindex = at;
  return d;
}

TEST(Udp, FilterOfBoundAndConnectedSockets) {
  Filter bound;
  bound.local = {ip("10.0.0.1"), 53, 0};
  EXPECT_TRUE(accepts(bound, datagram("10.0.0.2", 9, "10.0.0.1", 53)));
  EXPECT_FALSE(accepts(bound, datagram("10.0.0.2", 9, "10.0.0.1", 54)));
  EXPECT_FALSE(accepts(bound, datagram("10.0.0.2", 9, "10.0.0.3", 53)));
  Filter connected = bound;
  connected.remote = {ip("10.0.0.2"), 9, 0};
  EXPECT_TRUE(accepts(connected, datagram("10.0.0.2", 9, "10.0.0.1", 53)));
  EXPECT_FALSE(accepts(connected, datagram("10.0.0.2", 10, "10.0.0.1", 53)));
  EXPECT_FALSE(accepts(connected, datagram("10.0.0.3", 9, "10.0.0.1", 53)));
  Filter device = bound;
  device.bound_device = IfIndex(4);
  EXPECT_FALSE(accepts(device, datagram("10.0.0.2", 9, "10.0.0.1", 53)));
  EXPECT_TRUE(accepts(device, datagram("10.0.0.2", 9, "10.0.0.1", 53, IfIndex(4))));
}

TEST(Udp, FilterOfFamilies) {
  Filter any4;
  any4.local = {IpAddr::any_v4(), 53, 0};
  Filter any6;
  any6.local = {IpAddr(), 53, 0};
  any6.v6 = true;
  const auto d4 = datagram("10.0.0.2", 9, "10.0.0.1", 53);
  const auto d6 = datagram("2001:db8::2", 9, "2001:db8::1", 53);
  EXPECT_TRUE(accepts(any4, d4));
  EXPECT_FALSE(accepts(any4, d6));
  EXPECT_TRUE(accepts(any6, d4) && accepts(any6, d6)) << "dual stack";
  any6.v6only = true;
  EXPECT_FALSE(accepts(any6, d4));
  EXPECT_TRUE(accepts(any6, d6));
}

TEST(Udp, FilterOfMulticast) {
  Membership m;
  Filter s;
  s.local = {IpAddr::any_v4(), 53, 0};
  const auto d = datagram("10.0.0.2", 9, "239.0.0.1", 53);
  EXPECT_TRUE(accepts(s, d)) << "IP_MULTICAST_ALL is on by default";
  s.multicast_all = false;
  EXPECT_EQ(accepts(s, d).error(), Drop::kNotMember);
  s.groups = &m;
  EXPECT_EQ(accepts(s, d).error(), Drop::kNotMember);
  ASSERT_TRUE(m.join_source(ip("239.0.0.1"), ip("10.0.0.2"), kIf));
  EXPECT_TRUE(accepts(s, d));
  EXPECT_EQ(accepts(s, datagram("10.0.0.3", 9, "239.0.0.1", 53)).error(), Drop::kSourceFiltered);
}

TEST(Udp, ReceiveAccountAsLinux) {
  ReceiveAccount a(1000);
  EXPECT_TRUE(a.charge(5000)) << "an empty queue takes any";
  EXPECT_FALSE(a.charge(1));
  a.release(5000);
  EXPECT_TRUE(a.charge(1000));
  EXPECT_TRUE(a.charge(700)) << "the last may run over";
  EXPECT_FALSE(a.charge(1));
  a.release(701);
  EXPECT_TRUE(a.charge(1));
  EXPECT_EQ(a.used(), 1000U);
  a.release(1U << 31);
  EXPECT_EQ(a.used(), 0U);
  EXPECT_EQ(receive_limit(100000, 212992), 200000U);
  EXPECT_EQ(receive_limit(1 << 30, 212992), 425984U);
  EXPECT_EQ(receive_limit(0, 212992), 2304U);
}

TEST(Udp, SizesAndHowTheyLeave) {
  EXPECT_EQ(max_payload(1500, false), 1472U);
  EXPECT_EQ(max_payload(1500, true), 1452U);
  EXPECT_EQ(*plan_output(1472, 1500, false, true), SendAs::kOnePacket);
  EXPECT_EQ(plan_output(1473, 1500, false, true).error().code, EMSGSIZE);
  EXPECT_EQ(*plan_output(1473, 1500, false, false), SendAs::kFragments);
  EXPECT_EQ(*plan_output(65507, 1500, false, false), SendAs::kFragments);
  EXPECT_EQ(plan_output(65508, 1500, false, false).error().code, EMSGSIZE);
  EXPECT_EQ(*plan_output(0, 1500, true, true), SendAs::kOnePacket);
}

TEST(Udp, EmittedDatagramsComeBack) {
  for (bool no_checksum : {false, true}) {
    for (bool v6 : {false, true}) {
      const Spec s = udp_spec(v6);
      wire::HeaderTemplate::Params p;
      p.proto = IpProto::kUdp;
      p.src = s.src;
      p.dst = s.dst;
      p.src_port = 5;
      p.dst_port = 6;
      const auto t = wire::HeaderTemplate::build(p);
      std::byte out[256];
      const size_t n =
          emit(out, t, 5, checksum::sum(s.payload.data(), 5), wire::L4Sum::kFull, 0, no_checksum);
      std::memcpy(out + n, s.payload.data(), 5);
      const auto f = wire::parse_frame({out, n + 5});
      ASSERT_TRUE(f);
      EXPECT_EQ(f.udp().checksum.raw() == 0, no_checksum && !v6) << "IPv6 always has one";
      const auto d = input(f, kIf, ChecksumState::kUnknown);
      ASSERT_TRUE(d);
      EXPECT_EQ(d->src.port, 5);
      EXPECT_EQ(d->payload_bytes, 5);
    }
  }
}

}  // namespace
}  // namespace vireo::udp
