// LRO (dev/mlx5/lro.h) over softnic in lock-step: where it is, where the device is done without,
// what becomes one packet and what does not, and what its headers say.
#include <infiniband/mlx5dv.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "dev/mlx5/mlx5.h"
#include "dev/verbs/verbs.h"
#include "frames.h"
#include "opened_ends.h"
#include "tests/apparatus/softnic/control.h"

namespace vireo::test {
namespace {

constexpr uint16_t kPort = 7000, kFrom = 6000;
constexpr uint8_t kAck = 0x10, kPsh = 0x08, kFin = 0x01;

/// Of a packet as it was handed over.
struct Packet {
  Bytes bytes;
  uint32_t segments = 1;
  RxFlags flags = RxFlags::kNone;
  FlowTag tag{};
  int64_t hw_time = 0;
};

template <class T>
T at(const Bytes& b, size_t offset) {
  T v;
  std::memcpy(&v, b.data() + offset, sizeof v);
  return v;
}

class Lro : public testing::Test {
 protected:
  std::optional<OpenedEnds> ends_;
  std::unique_ptr<Queue> queues_[2];
  std::vector<FlowRule> rules_;
  uint32_t seq_ = 1000;
  ibv_device* nic_ = nullptr;

  void SetUp() override {
    unsetenv("SOFTNIC_WIRE");
    softnic_drive(true, false);
    ibv_device** list = ibv_get_device_list(nullptr);
    nic_ = list[1];
    ibv_free_device_list(list);
    open();
  }
  void TearDown() override {
    close();
    unsetenv("SOFTNIC_LACKS");
  }
  void close() {
    rules_.clear();
    for (auto& q : queues_) q.reset();
    if (!ends_) return;
    for (int side : {0, 1})
      EXPECT_EQ(ends_->pools[side]->free_count(), ends_->pools[side]->size()) << "frames are lent";
    ends_.reset();
    const softnic_objects o = softnic_objects_of(nic_);
    EXPECT_EQ(o.by_command + o.matchers + o.flows + o.work_queues, 0U);
  }
  void open(const char* lacks = "", bool v6 = false) {
    close();
    setenv("SOFTNIC_LACKS", lacks, 1);
    ends_.emplace();
    ASSERT_TRUE(ends_->open(4096, [&](int side, Arena& arena) {
      const std::string name = "softnic" + std::to_string(side);
      return open_mlx5({.device = name, .mac = Mac{2, 0, 0, 0, 0, 2}}, arena, {.lro = true});
    }));
    for (int side : {0, 1}) {
      auto queue = ends_->devices[side]->open_queue(QueueId(0), *ends_->pools[side]);
      ASSERT_TRUE(queue) << queue.error().where;
      queues_[side] = std::move(*queue);
    }
    steer(key_of(spec(v6)), 5);
  }
  static FrameSpec spec(bool v6 = false) {
    FrameSpec s;
    s.proto = IpProto::kTcp;
    in6_addr from{}, to{};
    from.s6_addr[0] = to.s6_addr[0] = 0xfd;
    from.s6_addr[15] = 1;
    to.s6_addr[15] = 2;
    s.from = {v6 ? IpAddr::v6(from) : IpAddr::v4(be32(0x0a000001)), kFrom, 0};
    s.to = {v6 ? IpAddr::v6(to) : IpAddr::v4(be32(0x0a000002)), kPort, 0};
    s.flags = kAck;
    return s;
  }
  static FlowKey key_of(const FrameSpec& s, bool exact = true) {
    FlowKey key;
    key.proto = s.proto;
    key.v6 = !s.to.addr.is_v4();
    key.local = s.to;
    if (exact) key.remote = s.from;
    return key;
  }
  void steer(const FlowKey& key, uint32_t tag) {
    auto rule = ends_->devices[1]->steer(key, FlowTag(tag), *queues_[1]);
    ASSERT_TRUE(rule) << rule.error().where;
    rules_.push_back(std::move(*rule));
  }
  std::string mode() { return ends_->devices[1]->caps().mode; }
  /// The next segment of the connection; it goes when the wire is looked at.
  Bytes put(FrameSpec s, size_t payload) {
    s.seq = seq_;
    const Bytes frame = build_frame(s, numbered_payload(seq_, payload));
    seq_ += static_cast<uint32_t>(payload);
    put_frame(frame);
    return frame;
  }
  void put_frame(const Bytes& frame) { ASSERT_TRUE(queues_[0]->tx({frame, {}}, Doorbell::kLater)); }
  std::vector<Packet> take() {
    queues_[0]->tx_flush();
    while (softnic_pump()) {
    }
    queues_[0]->tx_reap();
    std::vector<Packet> got;
    RxDesc descs[16];
    bool goes_on = false;
    while (const unsigned n = queues_[1]->rx_burst(descs)) {
      for (RxDesc& d : std::span(descs).first(n)) {
        if (!goes_on) got.push_back({{}, segments_of(d.flags), d.flags, d.tag, d.packet->hw_time});
        goes_on = has(d.flags, RxFlags::kMore);
        const auto b = std::as_const(*d.packet).bytes();
        got.back().bytes.insert(got.back().bytes.end(), b.begin(), b.end());
        d.packet.reset();
      }
      EXPECT_FALSE(goes_on);
      queues_[1]->rx_refill();
    }
    return got;
  }
  /// How many segments each packet has.
  std::vector<uint32_t> segments() {
    std::vector<uint32_t> n;
    for (const Packet& p : take()) n.push_back(p.segments);
    return n;
  }
  using Counts = std::vector<uint32_t>;
};

TEST_F(Lro, WhereTheDeviceHasItAndElseDoneWithout) {
  const auto mode_of = [&](const char* lacks) {
    open(lacks);
    for (int i = 0; i < 3; ++i) put(spec(), 1000);
    const auto got = segments();
    EXPECT_EQ(got.size(), mode() == "mlx5-lro" ? 1U : 3U) << lacks;
    return mode();
  };
  EXPECT_EQ(mode_of(""), "mlx5-lro");
  EXPECT_EQ(mode_of("lro"), "mlx5-striding");
  EXPECT_EQ(mode_of("devx"), "mlx5-striding");
  EXPECT_EQ(mode_of("matchers"), "mlx5-striding");
  EXPECT_EQ(mode_of("striding"), "mlx5");
  EXPECT_EQ(mode_of("tables"), "mlx5");
}

TEST_F(Lro, SegmentsInARowAreOnePacketWhoseHeadersAreOfTheWhole) {
  for (const bool v6 : {false, true})
    for (const uint16_t vlan : {uint16_t{0}, uint16_t{42}}) {
      SCOPED_TRACE(testing::Message() << (v6 ? "IPv6" : "IPv4") << ", VLAN " << vlan);
      open("", v6);
      FrameSpec s = spec(v6);
      if (vlan != 0) s.vlan = vlan;
      const size_t header = header_bytes(s), l3 = vlan != 0 ? 18 : 14;
      const size_t l4 = l3 + (v6 ? 40 : 20);
      Bytes stream;
      const uint32_t begin = seq_;
      for (uint32_t i = 0; i < 10; ++i) {
        s.ack = 5000 + i;
        s.window = static_cast<uint16_t>(100 + i);
        s.ttl = static_cast<uint8_t>(i == 4 ? 17 : 64);
        s.ip_id = static_cast<uint16_t>(i);
        if (i == 9) s.flags |= kPsh;
        const Bytes f = put(s, 1400 - i);
        stream.insert(stream.end(), f.begin() + static_cast<ptrdiff_t>(header), f.end());
      }
      const auto got = take();
      ASSERT_EQ(got.size(), 1U);
      const Packet& p = got[0];
      EXPECT_EQ(p.segments, 10U);
      EXPECT_EQ(p.tag, FlowTag(5));
      EXPECT_TRUE(has(p.flags, RxFlags::kL4Ok) && has(p.flags, RxFlags::kIpOk));
      ASSERT_EQ(p.bytes.size(), header + stream.size());
      EXPECT_TRUE(std::equal(stream.begin(), stream.end(),
                             p.bytes.begin() + static_cast<ptrdiff_t>(header)));
      EXPECT_EQ(be32toh(at<uint32_t>(p.bytes, l4 + 4)), begin);
      EXPECT_EQ(be32toh(at<uint32_t>(p.bytes, l4 + 8)), 5009U);
      EXPECT_EQ(be16toh(at<uint16_t>(p.bytes, l4 + 14)), 109U);
      EXPECT_EQ(at<uint8_t>(p.bytes, l4 + 13), kAck | kPsh);
      EXPECT_EQ(at<uint8_t>(p.bytes, l3 + (v6 ? 7 : 8)), 17);
      const auto length = be16toh(at<uint16_t>(p.bytes, l3 + (v6 ? 4 : 2)));
      EXPECT_EQ(length, p.bytes.size() - (v6 ? l4 : l3));
      if (!v6) {
        EXPECT_EQ(ones_sum(std::span(p.bytes).subspan(l3, 20)), 0xffffU);
      }
    }
}

/// RFC 7323 §4.3: the earliest segment's value is echoed; its echo belongs to the last ACK.
TEST_F(Lro, TimestampsAreTheFirstValueAndTheLastEcho) {
  constexpr size_t kOptionsAt = 54, kOptions = 12;
  for (uint32_t i = 0; i < 3; ++i) {
    FrameSpec s = spec();
    s.seq = 1000 + i * 1000;
    Bytes frame = build_frame(s, numbered_payload(i, 1000));
    const uint32_t stamps[] = {htobe32(0x0101080a), htobe32(100 + i), htobe32(50 + i)};
    const auto* const from = reinterpret_cast<const std::byte*>(stamps);
    frame.insert(frame.begin() + kOptionsAt, from, from + kOptions);
    frame[46] = std::byte{8 << 4};
    frame[16] = std::byte{1052 >> 8};
    frame[17] = std::byte{1052 & 0xff};  // the device makes the sums
    put_frame(frame);
  }
  const auto got = take();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].segments, 3U);
  ASSERT_EQ(got[0].bytes.size(), kOptionsAt + kOptions + 3000);
  EXPECT_EQ(be32toh(at<uint32_t>(got[0].bytes, kOptionsAt + 4)), 100U);
  EXPECT_EQ(be32toh(at<uint32_t>(got[0].bytes, kOptionsAt + 8)), 52U);
}

TEST_F(Lro, WhatDiffersOrEndsSomethingComesByItself) {
  FrameSpec s = spec();
  put(s, 1000);
  put(s, 1000);
  seq_ += 5000;  // a gap
  put(s, 1000);
  seq_ -= 2000;  // older
  put(s, 1000);
  EXPECT_EQ(segments(), (Counts{2, 1, 1}));
  s.flags = kAck | kPsh;
  put(s, 1000);  // ends the packet
  put(s, 1000);
  s.flags = kAck;
  put(s, 1000);
  put(s, 1000);
  EXPECT_EQ(segments(), (Counts{1, 1, 2}));
  put(s, 1000);
  s.flags = kAck | kFin;
  put(s, 1000);
  s.flags = kAck;
  put(s, 1000);
  EXPECT_EQ(segments(), (Counts{1, 1, 1}));
  put(s, 1000);
  s.tos = 3;  // congestion was experienced
  put(s, 1000);
  put(s, 1000);
  EXPECT_EQ(segments(), (Counts{1, 2}));
  put(s, 0);
  put(s, 0);
  EXPECT_EQ(segments(), (Counts{1, 1})) << "bare ACKs: each may be a duplicate that counts";
}

TEST_F(Lro, ACorruptSegmentIsNoPartOfAnother) {
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3; ++i) put(spec(), 1000);
    softnic_corrupt(nic_, 1);  // the first
    unsigned good = 0;
    for (const Packet& p : take()) {
      EXPECT_EQ(p.segments, has(p.flags, RxFlags::kL4Ok) ? 2U : 1U);
      good += has(p.flags, RxFlags::kL4Ok) ? 1 : 0;
    }
    EXPECT_EQ(good, 1U);
  }
}

TEST_F(Lro, ConnectionsBesideEachOtherAndDatagrams) {
  FrameSpec other = spec();
  other.from.port = kFrom + 1;
  FrameSpec udp = spec();
  udp.proto = IpProto::kUdp;
  steer(key_of(other), 6);
  steer(key_of(udp, false), 7);
  for (int i = 0; i < 5; ++i) {
    const uint32_t seq = seq_;
    put(spec(), 1000);
    seq_ = seq;
    put(other, 1000);
    put_frame(build_frame(udp, numbered_payload(1, 300)));
  }
  uint32_t of_tag[8] = {}, packets[8] = {};
  for (const Packet& p : take()) {
    ASSERT_LT(p.tag.value(), 8U);
    of_tag[p.tag.value()] += p.segments;
    ++packets[p.tag.value()];
  }
  for (const int tag : {5, 6, 7}) EXPECT_EQ(of_tag[tag], 5U) << tag;
  EXPECT_EQ(packets[5], 1U);
  EXPECT_EQ(packets[6], 1U);
  EXPECT_EQ(packets[7], 5U);
}

TEST_F(Lro, AListenersRuleAndAnExactOne) {
  rules_.clear();
  steer(key_of(spec(), false), 8);
  put(spec(), 1000);
  put(spec(), 1000);
  auto got = take();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].tag, FlowTag(8));
  steer(key_of(spec()), 9);
  put(spec(), 1000);
  got = take();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].tag, FlowTag(9));
  rules_.erase(rules_.begin());
  FrameSpec other = spec();
  other.from.port = kFrom + 1;
  put(other, 1000);
  EXPECT_TRUE(take().empty());
}

TEST_F(Lro, LongRowsAreCutWhereAPacketIsFull) {
  uint32_t wanted = seq_;
  for (int round = 0; round < 40; ++round) {
    uint32_t segments = 0;
    for (int i = 0; i < 50; ++i) put(spec(), 1448);
    for (const Packet& p : take()) {
      EXPECT_LE(p.bytes.size(), 32768U);
      EXPECT_EQ(be32toh(at<uint32_t>(p.bytes, 38)), wanted);
      wanted += static_cast<uint32_t>(p.bytes.size() - 54);
      segments += p.segments;
    }
    ASSERT_EQ(segments, 50U);
  }
  EXPECT_GT(softnic_counts_of(nic_).rx_coalesced, 1500U);
}

TEST_F(Lro, TimesAreOfPacketsThatAreOneSegment) {
  queues_[1]->stamp();
  put(spec(), 1000);
  auto got = take();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_NE(got[0].hw_time, 0);
  put(spec(), 1000);
  put(spec(), 1000);
  got = take();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].hw_time, 0) << "its completion has TCP's timestamps";
}

/// Libraries that the test is linked with are found by dlopen(3) under their names.
[[maybe_unused]] const auto kLinked = &mlx5dv_is_supported;

}  // namespace
}  // namespace vireo::test
