// Frames that a device still brings of a flow which is the kernel's by now: the kernel gets them,
// in order and with good checksums, and nobody is answered.
#include "stack/wire/parse.h"
#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

class Strays : public testing::Test {
 protected:
  explicit Strays(bool tags = true)
      : h{{.to_host = {.mtu = 9000},
           .device = {.promiscuous = true,
                      .tags = tags,
                      .mtu = 9000,
                      .checksums = Checksum::kNotNeeded}}} {}
  /// The next frame that the kernel was given.
  Bytes given() {
    auto& frames = h.link().kernel_frames(MemEnd::kA);
    if (frames.empty()) return {};
    Bytes first = std::move(frames.front());
    frames.erase(frames.begin());
    return first;
  }
  static std::string payload_of(const Bytes& frame) {
    const wire::ParsedFrame f = wire::parse_frame(frame);
    if (!f) return wire::parse_error_name(f.error);
    EXPECT_TRUE(checksums_hold(frame));
    return {reinterpret_cast<const char*>(f.payload().data()), f.payload().size()};
  }
  /// A connection with a rule of its own.
  Conn* connection(Peer& p) {
    Listening& l = h.listen(80);
    EXPECT_TRUE(p.connect());
    Conn* const c = h.accept(l);
    h.close(l);
    p.hear_all();
    return c;
  }
  void hand_over(Conn& c) {
    h.engine().acquire();
    EXPECT_TRUE(h.engine().tcp().hand_over(*c.flow, h.now()));
    h.engine().steering().give_strays(h.now());
    h.engine().unlock();
  }
  void datagram(uint16_t port, std::string_view text, bool poll_now) {
    const FrameSpec spec{
        .to_mac = kHostMac, .from = {ip("11.0.0.7"), 9, 0}, .to = {h.address(), port, 0}};
    h.inject(build_frame(spec, std::as_bytes(std::span(text))), poll_now);
  }

  Host h;  ///< every frame comes to us: as if its rule had been read just before it went
};

TEST_F(Strays, SegmentsInTheRingAreTheKernels) {
  Peer p(h, "11.0.0.7", 4000, 80);
  Conn* const c = connection(p);
  p.say(kAck, p.nxt, p.ack, {.data = "one", .poll_now = false});
  p.say(kAck, p.nxt + 3, p.ack, {.data = "two", .poll_now = false, .bad_checksum = true});
  hand_over(*c);
  EXPECT_EQ(payload_of(given()), "one");
  EXPECT_EQ(payload_of(given()), "two") << "with a checksum, which it did not have";
  p.say(kAck, p.nxt + 6, p.ack, {.data = "late"});
  EXPECT_EQ(payload_of(given()), "late");
  EXPECT_EQ(h.stats().given_to_kernel.get(), 3U);
  h.pass(Duration::ms(101));
  p.say(kAck, p.nxt + 10, p.ack, {.data = "too late"});
  EXPECT_EQ(given(), Bytes());
  EXPECT_EQ(p.hear_all().size(), 0U) << "no reset";
}

TEST_F(Strays, AConnectionThatIsNotTakenOverIsNotReset) {
  h.engine().acquire();
  const Endpoint local{h.address(), 80, 0}, remote{ip("11.0.0.7"), 4000, 0};
  const auto route = h.engine().next_hops().route({.dst = remote.addr, .src = local.addr});
  ASSERT_TRUE(route);
  const auto flow = h.engine().tcp().begin_take_over(
      *route, {IpProto::kTcp, false, VlanId(), local, remote}, {}, h.now());
  ASSERT_TRUE(flow);
  Peer p(h, "11.0.0.7", 4000, 80);
  h.engine().unlock();
  p.say(kAck, Seq32(1), Seq32(1), {.data = "request", .poll_now = false});
  h.engine().acquire();
  h.engine().tcp().give_up_take_over(**flow, h.now());
  h.engine().steering().give_strays(h.now());
  h.engine().unlock();
  EXPECT_EQ(payload_of(given()), "request");
  EXPECT_EQ(p.hear_all().size(), 0U);
  h.pass(Duration::ms(101));
  EXPECT_EQ(h.engine().live_flows(), 0U);
}

TEST_F(Strays, ASynForAListenerIsTheKernels) {
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80), other(h, "11.0.0.7", 4000, 81);
  h.engine().acquire();
  h.engine().listeners().give_to_kernel(*l.listener, h.now());
  h.engine().unlock();
  p.say(kSyn, p.iss, Seq32());
  EXPECT_EQ(payload_of(given()), "");
  EXPECT_EQ(h.stats().given_to_kernel.get(), 1U);
  EXPECT_EQ(p.hear_all().size(), 0U);
  // Somebody had a rule for this one, too, or it would not have come.
  other.say(kSyn, p.iss, Seq32());
  EXPECT_EQ(payload_of(given()), "");
  EXPECT_EQ(h.stats().given_to_kernel.get(), 2U);
  EXPECT_EQ(other.hear_all().size(), 0U);
  other.say(kAck, p.iss, Seq32());
  EXPECT_EQ(other.hear_all().size(), 1U) << "a reset: no listener of this port has gone";
}

TEST_F(Strays, DatagramsAreTheKernelsThoseThatWaitFirst) {
  SocketStats stats;
  auto u = h.engine().udp().open({h.address(), 7000, 0}, {}, false, nullptr, stats);
  ASSERT_TRUE(u);
  datagram(7000, "first", true);
  datagram(7000, "second", true);
  datagram(7000, "third", false);
  h.engine().acquire();
  h.engine().udp().leave_to_kernel(**u, h.now());
  h.engine().steering().give_strays(h.now());
  h.engine().unlock();
  for (const char* text : {"first", "second", "third"}) EXPECT_EQ(payload_of(given()), text);
  datagram(7001, "for another", true);
  EXPECT_EQ(given(), Bytes());
  EXPECT_EQ(h.stats().rx_unknown_flow.get(), 1U);
  h.pass(Duration::ms(101));
  EXPECT_EQ(h.engine().live_flows(), 0U);
}

// What is too long for the device's call reaches the kernel in fragments: here another host's.
TEST_F(Strays, ALongDatagramIsGivenInFragments) {
  for (const bool v6 : {false, true}) {
    SocketStats stats;
    const Endpoint local{h.address(v6), 7000, 0}, remote{ip(v6 ? "fd00::7" : "11.0.0.7"), 9, 0};
    auto u = h.engine().udp().open(local, {}, false, nullptr, stats);
    ASSERT_TRUE(u);
    const Bytes payload = numbered_payload(1, 8000);
    const FrameSpec spec{.to_mac = kHostMac, .from = remote, .to = local};
    h.inject(build_frame(spec, payload));
    h.engine().acquire();
    h.engine().udp().leave_to_kernel(**u, h.now());
    h.engine().unlock();

    Host kernel{{.to_host = {.mtu = 9000}, .device = {.promiscuous = true, .mtu = 9000}}};
    auto k = kernel.engine().udp().open(local, {}, false, nullptr, stats);
    ASSERT_TRUE(k);
    unsigned fragments = 0;
    for (Bytes f = given(); !f.empty(); f = given(), ++fragments) kernel.inject(f);
    EXPECT_EQ(fragments, 4U);
    Bytes got;
    for (const PacketBuf* p = (*k)->queue.front(); p != nullptr; p = p->next)
      got.insert(got.end(), p->data(), p->data() + p->length);
    EXPECT_EQ(got, payload);
    kernel.engine().udp().close(**k);
  }
}

/// Of a device without tags what is in the ring is handled while the rules are changed.
class StraysAhead : public Strays {
 protected:
  StraysAhead() : Strays(false) {}
};

/// Else the peer's ACK might be one for data that the kernel has not sent, which it ignores.
TEST_F(StraysAhead, NothingIsSentOnceAConnectionsStateWasRead) {
  Peer p(h, "11.0.0.7", 4000, 80);
  Conn* const c = connection(p);
  EXPECT_EQ(h.write(*c, "text"), 4U);
  EXPECT_EQ(p.hear_all().size(), 1U);
  p.say(kAck, p.nxt, p.ack, {.data = "one", .poll_now = false});
  h.engine().acquire();
  EXPECT_TRUE(h.engine().tcp().hand_over(*c->flow, h.now() + Duration::s(2)));  // its timer is due
  h.engine().steering().give_strays(h.now());
  h.engine().unlock();
  EXPECT_EQ(p.hear_all().size(), 0U);
  EXPECT_EQ(payload_of(given()), "one");
}

}  // namespace
}  // namespace vireo::test
