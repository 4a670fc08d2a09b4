// Neighbours on the same host: checksums that their kernel has left to a NIC, and what it has
// joined for one to part.
#include "dev/xdp/unfinished.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "end.h"
#include "lab.h"
#include "raw_port.h"

namespace vireo::test {
namespace {

size_t l4_at(const FrameSpec& s) { return header_bytes(s) - (s.proto == IpProto::kTcp ? 20 : 8); }
size_t field_at(const FrameSpec& s) { return l4_at(s) + (s.proto == IpProto::kTcp ? 16 : 6); }

void set_field(Bytes& f, size_t at, uint32_t v) {
  f[at] = static_cast<std::byte>(v >> 8);
  f[at + 1] = static_cast<std::byte>(v);
}

/// As a kernel hands it to a NIC: the sum of the pseudo-header in the field.
Bytes unfinished(const FrameSpec& s, std::span<const std::byte> payload) {
  Bytes f = build_frame(s, payload);
  const size_t addresses = s.from.addr.is_v4() ? 8 : 32;
  uint32_t sum =
      ones_sum(std::span(f).subspan(l4_at(s) - addresses, addresses),
               static_cast<uint32_t>(f.size() - l4_at(s)) + static_cast<uint32_t>(s.proto));
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  set_field(f, field_at(s), sum);
  return f;
}

/// In memory of just that size, which sanitizers watch.
bool is_unfinished(const Bytes& f, size_t bytes) {
  const std::unique_ptr<std::byte[]> exact(new std::byte[bytes]);
  std::copy_n(f.begin(), bytes, exact.get());
  return xdp::is_unfinished(exact.get(), static_cast<uint32_t>(bytes));
}
bool is_unfinished(const Bytes& f) { return is_unfinished(f, f.size()); }

std::vector<FrameSpec> every_kind() {
  std::vector<FrameSpec> all;
  for (const IpProto proto : {IpProto::kTcp, IpProto::kUdp})
    for (const bool v6 : {false, true})
      for (const bool tagged : {false, true}) {
        FrameSpec s;
        s.proto = proto;
        s.from = {*IpAddr::parse(v6 ? "fd00::1:2" : "10.0.0.2"), 5000, 0};
        s.to = {*IpAddr::parse(v6 ? "fd00:ffff::1" : "192.168.250.1"), kPort, 0};
        if (tagged) s.vlan = 5;
        all.push_back(s);
      }
  return all;
}

TEST(Unfinished, IsTheSumOfThePseudoHeaderAndNothingElse) {
  for (const FrameSpec& s : every_kind())
    for (const size_t n : {0U, 1U, 7U, 1400U}) {
      const Bytes payload = numbered_payload(3, n);
      Bytes f = unfinished(s, payload);
      EXPECT_TRUE(is_unfinished(f));
      EXPECT_FALSE(is_unfinished(build_frame(s, payload))) << "a checksum";
      const auto field =
          static_cast<uint32_t>(f[field_at(s)]) << 8 | static_cast<uint32_t>(f[field_at(s) + 1]);
      for (const uint32_t other : {field + 1, field - 1, field ^ 0x100, 0U, 0xffffU}) {
        set_field(f, field_at(s), other);
        EXPECT_FALSE(is_unfinished(f)) << other;
      }
    }
}

TEST(Unfinished, FieldsThatAreNotThereAreNotRead) {
  for (const FrameSpec& s : every_kind()) {
    const Bytes f = unfinished(s, numbered_payload(3, 40));
    for (size_t n = 0; n < field_at(s) + 2; ++n) EXPECT_FALSE(is_unfinished(f, n)) << n;
    EXPECT_TRUE(is_unfinished(f, header_bytes(s))) << "the rest is in other buffers";
  }
}

TEST(Unfinished, BehindIpOptions) {
  for (FrameSpec& s : every_kind()) {
    if (!s.from.addr.is_v4() || s.vlan) continue;
    Bytes f = unfinished(s, numbered_payload(3, 40));
    f.insert(f.begin() + 34, 4, std::byte{1});  // no operation
    f[14] = std::byte{0x46};
    f[17] = static_cast<std::byte>(std::to_integer<unsigned>(f[17]) + 4);
    EXPECT_TRUE(is_unfinished(f));
    f[14] = std::byte{0x44};
    EXPECT_FALSE(is_unfinished(f)) << "a header shorter than its fields";
  }
}

TEST(Unfinished, NotOfOtherProtocols) {
  FrameSpec s;
  s.from = {kAddress[1], 5000, 0};
  s.to = {kAddress[0], kPort, 0};
  Bytes f = unfinished(s, numbered_payload(3, 40));
  f[23] = std::byte{1};
  EXPECT_FALSE(is_unfinished(f));
  f[23] = std::byte{17};
  f[12] = std::byte{0x86};  // no EtherType of ours
  EXPECT_FALSE(is_unfinished(f));
}

/// Frames from a kernel that leaves checksums, and perhaps parting, to the NIC.
class Neighbour {
 public:
  explicit Neighbour(IfIndex ifindex) : raw_(ifindex, true) {}
  /// `part` > 0: into so many bytes of payload each.
  bool send(const FrameSpec& s, const Bytes& f, size_t part = 0) const {
    Told h;
    h.csum_start = static_cast<uint16_t>(l4_at(s));
    h.csum_offset = static_cast<uint16_t>(field_at(s) - l4_at(s));
    if (part > 0) {
      h.gso_type = s.proto == IpProto::kUdp ? 5 : s.from.addr.is_v4() ? 1 : 4;
      h.gso_size = static_cast<uint16_t>(part);
      h.hdr_len = static_cast<uint16_t>(header_bytes(s));
    }
    Bytes all(sizeof h);
    std::memcpy(all.data(), &h, all.size());
    all.insert(all.end(), f.begin(), f.end());
    return raw_.send(all);
  }

 private:
  /// virtio_net_hdr, whose header C++ cannot read.
  struct Told {
    uint8_t flags = 1;  ///< VIRTIO_NET_HDR_F_NEEDS_CSUM
    uint8_t gso_type = 0;
    uint16_t hdr_len = 0, gso_size = 0, csum_start = 0, csum_offset = 0;
  };
  RawPort raw_;
};

/// The next packet, its buffers joined, and the flags of the first.
struct Packet {
  Bytes bytes;
  RxFlags flags = RxFlags::kNone;
  unsigned buffers = 0;
};
Packet next(Queue& q) {
  Packet p;
  for (int tries = 0; tries < 300; ++tries) {
    RxDesc in[1];
    if (q.rx_burst(in) == 0) {
      usleep(1000);
      continue;
    }
    if (p.buffers++ == 0) p.flags = in[0].flags;
    const auto b = in[0].packet->bytes();
    p.bytes.insert(p.bytes.end(), b.begin(), b.end());
    const bool is_last = !has(in[0].flags, RxFlags::kMore);
    in[0].packet.reset();
    q.rx_refill();
    if (is_last) break;
  }
  return p;
}

class Neighbours : public ::testing::TestWithParam<XdpMode> {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  }
  static FrameSpec spec(IpProto proto) {
    FrameSpec s;
    std::swap(s.from_mac, s.to_mac);
    s.proto = proto;
    s.from = {kAddress[1], 5000, 0};
    s.to = {kAddress[0], kPort, 0};
    return s;
  }
  static void carry(End& end, IpProto proto) {
    FlowKey k;
    k.proto = proto;
    k.local = {kAddress[0], kPort, 0};
    auto r = end.device->steer(k, FlowTag(0), *end.queues[0]);
    ASSERT_TRUE(r);
    end.rules.push_back(std::move(*r));
  }
};

TEST_P(Neighbours, UnfinishedSegmentsAreGoodAndHarmedOnesAreNot) {
  const Veth veth;
  End end(veth.index(0), {.mode = GetParam()});
  ASSERT_TRUE(end.device && end.open_queue()) << end.error.where;
  carry(end, IpProto::kTcp);
  const Neighbour neighbour(veth.index(1));
  const RawPort wire(veth.index(1));
  const FrameSpec s = spec(IpProto::kTcp);
  const Bytes payload = numbered_payload(1, 1000);

  const Bytes left = unfinished(s, payload);
  ASSERT_TRUE(neighbour.send(s, left));
  Packet p = next(*end.queues[0]);
  EXPECT_EQ(p.bytes, left);
  EXPECT_TRUE(has(p.flags, RxFlags::kL4Ok));

  const Bytes whole = build_frame(s, payload);
  ASSERT_TRUE(wire.send(whole));
  p = next(*end.queues[0]);
  EXPECT_EQ(p.bytes, whole);
  EXPECT_FALSE(has(p.flags, RxFlags::kL4Ok)) << "to be verified";

  Bytes harmed = whole;
  set_field(harmed, field_at(s), 0x1234);
  ASSERT_TRUE(wire.send(harmed));
  p = next(*end.queues[0]);
  EXPECT_EQ(p.bytes, harmed);
  EXPECT_FALSE(has(p.flags, RxFlags::kL4Ok));
}

/// Native: veth has the neighbour part them. Generic: they come as they are.
TEST_P(Neighbours, JoinedSegmentsArriveWhole) {
  const Veth veth;
  End end(veth.index(0), {.mode = GetParam()});
  ASSERT_TRUE(end.device && end.open_queue()) << end.error.where;
  if (GetParam() == XdpMode::kGeneric && !end.device->caps().multi_frame)
    GTEST_SKIP() << "this kernel's AF_XDP takes no packet of several frames";
  carry(end, IpProto::kTcp);
  const Neighbour neighbour(veth.index(1));
  const FrameSpec s = spec(IpProto::kTcp);
  for (const size_t n : {3000U, 20'000U, 65'000U}) {
    const Bytes payload = numbered_payload(static_cast<uint32_t>(n), n);
    ASSERT_TRUE(neighbour.send(s, unfinished(s, payload), 1448));
    Bytes got;
    unsigned packets = 0;
    while (got.size() < n) {
      const Packet p = next(*end.queues[0]);
      ASSERT_GT(p.bytes.size(), header_bytes(s)) << got.size() << " of " << n;
      EXPECT_TRUE(has(p.flags, RxFlags::kL4Ok));
      got.insert(got.end(), p.bytes.begin() + static_cast<ptrdiff_t>(header_bytes(s)),
                 p.bytes.end());
      ++packets;
    }
    EXPECT_EQ(got, payload);
    EXPECT_EQ(packets, GetParam() == XdpMode::kGeneric ? 1U : (n + 1447) / 1448);
  }
}

/// No frame says where each of several joined datagrams ends: the kernel, which knows, has them.
TEST_P(Neighbours, JoinedDatagramsArePartedOrTheKernels) {
  const Veth veth;
  End end(veth.index(0), {.mode = GetParam()});
  ASSERT_TRUE(end.device && end.open_queue()) << end.error.where;
  carry(end, IpProto::kUdp);
  const RawPort kernel(veth.index(0));
  const Neighbour neighbour(veth.index(1));
  const RawPort wire(veth.index(1));
  const FrameSpec s = spec(IpProto::kUdp);
  const Bytes payload = numbered_payload(1, 1200);
  const Bytes joined = unfinished(s, payload);
  ASSERT_TRUE(neighbour.send(s, joined, 400));
  if (GetParam() == XdpMode::kGeneric) {
    EXPECT_EQ(kernel.receive(1000).value_or(Bytes()), joined);
  } else {
    for (unsigned i = 0; i < 3; ++i) {
      const Packet p = next(*end.queues[0]);
      ASSERT_EQ(p.bytes.size(), header_bytes(s) + 400);
      EXPECT_TRUE(std::equal(p.bytes.begin() + static_cast<ptrdiff_t>(header_bytes(s)),
                             p.bytes.end(), payload.begin() + 400 * i));
      EXPECT_TRUE(has(p.flags, RxFlags::kL4Ok));
    }
  }
  // One with a checksum is nothing but itself.
  const Bytes whole = build_frame(s, payload);
  ASSERT_TRUE(wire.send(whole));
  EXPECT_EQ(next(*end.queues[0]).bytes, whole);
}

INSTANTIATE_TEST_SUITE_P(Mode, Neighbours, ::testing::Values(XdpMode::kNative, XdpMode::kGeneric),
                         [](const auto& i) {
                           return std::string(i.param == XdpMode::kNative ? "native" : "generic");
                         });

}  // namespace
}  // namespace vireo::test
