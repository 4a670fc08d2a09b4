// Two members of a group on one queue, each with a socket and rules of its own, and the frames that
// reach them or the kernel. Owner: the test. Thread: the test's.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <set>

#include "bare_socket.h"
#include "dev/xdp/late_libbpf.h"
#include "dev/xdp/steer.h"
#include "dev/xdp/steer_arrays.h"
#include "lab.h"
#include "odd_frames.h"
#include "raw_port.h"

namespace vireo::test {

inline const IpAddr kOurs4 = *IpAddr::parse("10.0.0.1"), kPeer4 = *IpAddr::parse("10.0.0.2");
inline const IpAddr kOurs6 = *IpAddr::parse("fd76::1"), kPeer6 = *IpAddr::parse("fd76::2");
inline const IpAddr kRouter4 = *IpAddr::parse("10.9.9.9"), kRouter6 = *IpAddr::parse("fd76::99");
inline constexpr Mac kOurMac{2, 0, 0, 0, 0, 1}, kPeerMac{2, 0, 0, 0, 0, 2};
inline constexpr uint16_t kPeerPort = 5000;

enum class Kind { kExact, kLocal, kWild };

/// A flow between our `port` and the peer's kPeerPort.
struct Flow {
  IpProto proto = IpProto::kTcp;
  bool v6 = false;
  uint16_t port = 80;
  uint16_t peer_port = kPeerPort;
  uint8_t flags = 0x18;  ///< of TCP: PSH ACK

  IpAddr ours() const { return v6 ? kOurs6 : kOurs4; }
  IpAddr peer() const { return v6 ? kPeer6 : kPeer4; }
  IpAddr any() const { return v6 ? IpAddr() : IpAddr::any_v4(); }
  FlowKey key(Kind kind) const {
    FlowKey k;
    k.proto = proto;
    k.v6 = v6;
    k.local = {kind == Kind::kWild ? any() : ours(), port, 0};
    k.remote = kind == Kind::kExact ? Endpoint{peer(), peer_port, 0} : Endpoint{any(), 0, 0};
    return k;
  }
  Bytes frame(uint16_t id = 0) const {
    FrameSpec s;
    s.proto = proto;
    s.from = {peer(), peer_port, 0};
    s.to = {ours(), port, 0};
    s.from_mac = kPeerMac;
    s.to_mac = kOurMac;
    s.ip_id = id;
    s.flags = flags;
    return build_frame(s, numbered_payload(7, 60));
  }
  /// An ICMP error of a router about what we sent.
  Bytes error() const {
    FrameSpec s;
    s.proto = proto;
    s.from = {ours(), port, 0};
    s.to = {peer(), peer_port, 0};
    const Bytes sent = build_frame(s, numbered_payload(7, 60));
    return v6 ? icmp_error(kRouter6, kOurs6, kOurMac, 1, 0, sent, 48)
              : icmp_error(kRouter4, kOurs4, kOurMac, 3, 3, sent, 28);
  }
  Bytes fragment(uint16_t id, bool is_first) const {
    if (!v6) return as_fragment4(frame(id), is_first ? 0x2000 : 0x0010);
    Bytes f = with_extension6(frame(), 44);
    put(f, kEthernet + 40 + 2, {0, is_first ? 1U : 0x80U, 0, 0, id / 256U, id % 256U});
    return f;
  }
};

enum class Who { kA, kB, kC, kKernel, kNobody, kSeveral };
inline std::ostream& operator<<(std::ostream& o, Who w) {
  constexpr const char* kNames[] = {"A", "B", "C", "the kernel", "nobody", "several"};
  return o << kNames[static_cast<int>(w)];
}

struct GroupLab {
  static constexpr unsigned kSlotA = 0, kSlotB = 3, kSlotC = 63;

  explicit GroupLab(bool tags = false, uint32_t queues = 1, uint32_t listeners = 64)
      : veth({.queues = queues}) {
    const auto interface = xdp::describe(veth.index(0));
    if (!interface) return;
    auto loaded = xdp::Steering::load(*interface, {.flows = 256, .listeners = listeners}, tags,
                                      nullptr, member(0));
    if (!loaded || !(*loaded)->attach(veth.index(0), xdp::Attach::kNative)) return;
    a = *loaded;
    socket_a = std::make_unique<BareSocket>(memory, veth.index(0), nullptr);
    auto kit = a->kit();
    if (!kit) return;
    watched = std::move(*kit);
    ports = mapped();
    is_open = wire.open() && kernel.open() && socket_a->is_open() &&
              a->set_socket(QueueId(0), socket_a->fd());
    tell(*a);
  }
  xdp::SteeringMember member(unsigned slot) {
    return {slot, [this](unsigned s) { return !dead.contains(s); }};
  }
  /// In this process.
  bool add_b() {
    socket_b = std::make_unique<BareSocket>(memory, veth.index(0), socket_a.get());
    socket_b->give_back_to(*socket_a);
    b = joined();
    return b && socket_b->is_open() && b->set_socket(QueueId(0), socket_b->fd());
  }
  bool add_c() {
    socket_c = std::make_unique<BareSocket>(memory, veth.index(0), socket_a.get());
    socket_c->give_back_to(*socket_a);
    c = joined(kSlotC);
    return c && socket_c->is_open() && c->set_socket(QueueId(0), socket_c->fd());
  }
  std::shared_ptr<xdp::Steering> joined(unsigned slot = kSlotB) {
    auto kit = a->kit();
    auto made = xdp::Steering::join(std::move(*kit), member(slot));
    return made ? *made : nullptr;
  }
  static void tell(xdp::Steering& s, bool fragments = false) {
    const HostLink link{VlanId(), kOurMac};
    const IpAddr ours[] = {kOurs4, kOurs6};
    s.set_host({{&link, 1}, ours, fragments});
  }

  std::array<std::pair<BareSocket*, Who>, 3> sockets() const {
    return {{{socket_a.get(), Who::kA}, {socket_b.get(), Who::kB}, {socket_c.get(), Who::kC}}};
  }

  /// Who got the frame.
  Who outcome(const Bytes& frame) {
    EXPECT_TRUE(wire.send(frame));
    Who got = Who::kNobody;
    const auto add = [&](Who who) { got = got == Who::kNobody ? who : Who::kSeveral; };
    // After the first has it, a moment for a second.
    for (int tries = 0, after = 0; tries < 30 && after < 2; ++tries) {
      if (kernel.receive(5)) add(Who::kKernel);
      for (const auto& [socket, who] : sockets()) {
        if (socket == nullptr) continue;
        const auto frame_got = socket->receive();
        if (!frame_got) continue;
        add(who);
        EXPECT_EQ(frame_got->frame, frame) << "changed on the way";
        tag = frame_got->tag;
      }
      if (got != Who::kNobody) ++after;
    }
    return got;
  }

  /// Nothing is left of any rule, question or share.
  void expect_empty() {
    const auto& state = ports.counts();
    unsigned kinds = 0, counts = 0, asking = 0, rules = 0, sharers = 0, buckets = 0;
    for (const uint16_t k : ports.arrays().port_kinds) kinds += k != 0;
    for (const auto& p : state.ports)
      for (const uint32_t n : p.rules) counts += n != 0;
    for (const auto& m : state.asking) asking += m != 0;
    for (const auto& members : state.sharers) sharers += members != 0;
    for (const auto& end : ports.arrays().sharers)
      for (const uint8_t sharer : end) buckets += sharer != 0;
    tables().for_each([&](const xdp::SteerRule&, uint64_t) { ++rules; });
    EXPECT_EQ(sharers, 0U);
    EXPECT_EQ(buckets, 0U);
    EXPECT_EQ(kinds, 0U);
    EXPECT_EQ(counts, 0U);
    EXPECT_EQ(asking, 0U);
    EXPECT_EQ(rules, 0U);
    EXPECT_EQ(state.listeners[0], 0U);
    EXPECT_EQ(state.listeners[1], 0U);
    EXPECT_EQ(state.is_stale, 0U);
    for (unsigned slot = 0; slot < STEER_MEMBERS; ++slot) EXPECT_FALSE(state.lock.is_held_by(slot));
  }
  /// For a forked child too, which does not inherit `ports`.
  xdp::SteerPorts mapped() const {
    xdp::SteerPorts p;
    if (!p.map(watched[xdp::kSteerCounts].get(), watched[xdp::kSteerArrays].get())) std::abort();
    return p;
  }
  xdp::SteerTables tables() const {
    return {watched[xdp::kSteerExact4].get(), watched[xdp::kSteerExact6].get(),
            watched[xdp::kSteerLocal4].get(), watched[xdp::kSteerLocal6].get()};
  }

  Veth veth;
  PacketMemory memory;
  RawPort wire{veth.index(1)}, kernel{veth.index(0)};
  std::unique_ptr<BareSocket> socket_a, socket_b, socket_c;
  std::set<unsigned> dead;  ///< slots
  std::shared_ptr<xdp::Steering> a, b, c;
  xdp::SteeringKit watched;
  xdp::SteerPorts ports;  ///< a further view of the shared memory
  uint32_t tag = 0;       ///< of the last frame
  bool is_open = false;
};

}  // namespace vireo::test
