// A device that takes VLAN tags off: what is for a VLAN looks as if it were for the interface. Who
// names one of them is the kernel's, others hear all of it.
#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr const char* kHidden = "hidden, and how to see them";

/// eth0, with a VLAN on it that has the addresses, or with none.
class HiddenTags : public testing::Test {
 protected:
  HiddenTags() : HiddenTags(kHidden, 5) {}
  HiddenTags(const char* hides_tags, uint16_t vlan) : h({.device = {.hides_tags = hides_tags}}) {
    h.mirror().store().publish(tables({.vlan = vlan}));
  }
  Carried<UdpFlow*> open(IfIndex device, uint32_t scope = 0, uint32_t remote_scope = 0) {
    const Endpoint remote{ip("fd00::7"), 5000, remote_scope};
    return h.engine().udp().open({ip("fd00::1"), 7000, scope},
                                 remote_scope != 0 ? remote : Endpoint{}, false, this, stats,
                                 device);
  }
  Carried<Listener*> listen(IfIndex device) {
    return h.engine().listeners().listen({IpAddr(), 80, 0}, false, 16, {}, this, stats,
                                         {.device = device});
  }
  Carried<Route> route(IfIndex oif, bool hears) {
    return h.engine().next_hops().route(
        {.dst = ip("11.0.0.7"), .src = {}, .oif = oif, .hears = hears});
  }
  template <class T>
  void expect_refused(const Carried<T>& c) {
    ASSERT_FALSE(c);
    EXPECT_EQ(c.error().why, Carriage::kInterface);
    EXPECT_STREQ(c.error().where, kHidden);
  }
  /// Sockets of each device, and of none, are carried.
  void expect_all(std::initializer_list<IfIndex> devices) {
    for (const IfIndex device : devices) {
      const auto u = open(device);
      ASSERT_TRUE(u) << device.value();
      EXPECT_EQ(h.link().rules(MemEnd::kA), 1U);
      h.engine().udp().close(**u);
      const auto l = listen(device);
      ASSERT_TRUE(l) << device.value();
      h.engine().listeners().close(**l, h.now());
    }
    const auto u = open({}, 2);
    ASSERT_TRUE(u) << "a scope";
    h.engine().udp().close(**u);
  }

  Host h;
  SocketStats stats;
};

TEST_F(HiddenTags, WhoNamesADeviceIsTheKernels) {
  for (const IfIndex device : {kEth0, kVlan}) {
    expect_refused(open(device));
    expect_refused(listen(device));
    expect_refused(open({}, device.value()));
    expect_refused(open({}, 0, device.value()));
  }
  expect_refused(route(kVlan, true));
  EXPECT_TRUE(route(kVlan, false)) << "who only sends by it may";
  EXPECT_EQ(h.link().rules(MemEnd::kA), 0U);
}

TEST_F(HiddenTags, AGroupIsJoinedByTheKernelAlone) {
  const auto u = open({});
  ASSERT_TRUE(u);
  for (const IfIndex device : {kEth0, kVlan})
    expect_refused(h.engine().udp().join(**u, ip("239.1.2.3"), device));
  for (const UdpGroup& g : (*u)->groups) EXPECT_EQ(g.carrier, IfIndex());
  h.engine().udp().close(**u);
}

TEST_F(HiddenTags, WhoNamesOneLaterIsTheKernelsFromThenOn) {
  const auto u = open({});
  const auto l = listen({});
  ASSERT_TRUE(u && l);
  expect_refused(h.engine().udp().hear_by(**u, kVlan));
  expect_refused(h.engine().listeners().hear_by(**l, kEth0));
  EXPECT_EQ(h.link().rules(MemEnd::kA), 0U);
  h.engine().udp().close(**u);
  h.engine().listeners().close(**l, h.now());
}

Bytes tagged(const char* from, const char* to) {
  return build_frame({.from_mac = kRouterMac,
                      .to_mac = kHostMac,
                      .vlan = 5,
                      .from = {ip(from), 5000, 0},
                      .to = {ip(to), 7000, 0}},
                     Bytes(64));
}

TEST_F(HiddenTags, WhoNamesNoneHearsTheVlan) {
  const auto u = open({});
  ASSERT_TRUE(u);
  h.inject(tagged("fd00::7", "fd00::1"));
  EXPECT_FALSE((*u)->queue.empty());
  h.engine().udp().close(**u);
}

/// The way back is by the VLAN, by which it came, whatever it looks like (RFC 3704, rp_filter 1).
TEST_F(HiddenTags, TheWayBackMayBeTheVlan) {
  for (const bool by_vlan : {true, false}) {
    auto s = tables({.vlan = 5});
    net::Links links = *s->links;
    for (net::Link& l : links.all) {
      l.rp_filter = 1;
      if (!by_vlan && l.index == kVlan) l.kind = net::LinkKind::kPhysical;  // another wire's
    }
    s->links = std::make_shared<const net::Links>(std::move(links));
    h.mirror().store().publish(std::move(s));
    const auto u = h.engine().udp().open({IpAddr(), 7000, 0}, {}, false, this, stats);
    ASSERT_TRUE(u);
    h.inject(tagged("11.0.0.7", "10.0.0.1"));
    EXPECT_EQ(!(*u)->queue.empty(), by_vlan);
    h.engine().udp().close(**u);
  }
}

class HiddenTagsNoVlan : public HiddenTags {
 protected:
  HiddenTagsNoVlan() : HiddenTags(kHidden, 0) {}
};
TEST_F(HiddenTagsNoVlan, IsThere) { expect_all({IfIndex(), kEth0}); }

class TagsInFrames : public HiddenTags {
 protected:
  TagsInFrames() : HiddenTags(nullptr, 5) {}
};
TEST_F(TagsInFrames, TheyTell) { expect_all({IfIndex(), kEth0, kVlan}); }

}  // namespace
}  // namespace vireo::test
