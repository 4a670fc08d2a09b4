// Packets that come in fragments are heard like others, in the order in which they became whole;
// what stays incomplete gives its buffers back.
#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr Mac kOurMac{2, 0, 0, 0, 0, 1};

FrameSpec spec(bool v6, IpProto proto = IpProto::kUdp, uint16_t id = 7) {
  return {.from_mac = {2, 0, 0, 0, 0, 2},
          .to_mac = kOurMac,
          .proto = proto,
          .from = {ip(v6 ? "fd11::7" : "11.0.0.7"), 5000, 0},
          .to = {ip(v6 ? "fd00::1" : "10.0.0.1"), 7000, 0},
          .ip_id = id};
}

void set16(Bytes& f, size_t at, size_t v) {
  f[at] = static_cast<std::byte>(v >> 8);
  f[at + 1] = static_cast<std::byte>(v);
}

/// Cut into fragments whose data are `step` bytes, a multiple of 8.
std::vector<Bytes> cut(const Bytes& whole, bool v6, uint16_t id, size_t step) {
  const size_t headers = 14 + (v6 ? 40U : 20U);
  std::vector<Bytes> all;
  for (size_t i = headers; i < whole.size(); i += step) {
    const size_t n = std::min(step, whole.size() - i);
    const bool more = i + n < whole.size();
    const size_t offset = i - headers;
    Bytes f(whole.begin(), whole.begin() + static_cast<long>(headers));
    if (v6) {
      f.resize(headers + 8);
      f[headers] = f[20];  // the next header
      f[20] = std::byte{44};
      set16(f, 18, n + 8);
      set16(f, headers + 2, offset | (more ? 1 : 0));
      set16(f, headers + 6, id);
    } else {
      set16(f, 16, 20 + n);
      set16(f, 20, offset / 8 | (more ? 0x2000 : 0));
      set16(f, 24, 0);
      uint32_t sum = ones_sum(std::span(f).subspan(14, 20));
      while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
      set16(f, 24, 0xffff - sum);
    }
    f.insert(f.end(), whole.begin() + static_cast<long>(i),
             whole.begin() + static_cast<long>(i + n));
    all.push_back(std::move(f));
  }
  return all;
}

class Fragments : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const auto u = h.engine().udp().open({IpAddr(), 7000, 0}, {}, false, this, stats);
    ASSERT_TRUE(u);
    flow = *u;
    free_before = free();  // the device's ring is full by now
  }
  void TearDown() override {
    h.engine().udp().close(*flow);
    h.pass(Duration::s(61));
    h.settle();
    EXPECT_EQ(free(), free_before) << "buffers are lost";
  }
  uint64_t free() {
    h.engine().poll(h.now());
    h.settle();
    return h.stats().pool_free.get();
  }
  /// The payloads that are queued, each taken out.
  std::vector<Bytes> heard() {
    std::vector<Bytes> all;
    while (!flow->queue.empty()) {
      Bytes one;
      for (bool more = true; more;) {
        const PacketRef p = flow->queue.pop_front();
        more = p->offset != 0;
        one.insert(one.end(), p->bytes().begin(), p->bytes().end());
        UdpFlows::received(*flow, *p);
      }
      all.push_back(std::move(one));
    }
    return all;
  }
  Bytes payload(uint32_t number, size_t n) { return numbered_payload(number, n); }
  std::vector<Bytes> fragments(uint32_t number, size_t n) {
    const auto id = static_cast<uint16_t>(number);
    return cut(build_frame(spec(v6, IpProto::kUdp, id), payload(number, n)), v6, id,
               v6 ? 1448 : 1480);
  }

  const bool v6 = GetParam();
  Host h{{.device = {.promiscuous = true}}};  // its rules know no fragments
  UdpFlow* flow = nullptr;
  SocketStats stats;
  uint64_t free_before = 0;
};
INSTANTIATE_TEST_SUITE_P(Families, Fragments, testing::Bool(),
                         [](const auto& i) { return i.param ? "v6" : "v4"; });

TEST_P(Fragments, ADatagramIsHeardInItsPlaceAmongOthers) {
  const auto large = fragments(2, 4000);
  ASSERT_EQ(large.size(), 3U);
  h.inject(build_frame(spec(v6), payload(1, 10)));
  h.inject(large[2]);
  h.inject(large[0]);
  h.inject(build_frame(spec(v6), payload(3, 20)));
  h.inject(large[1]);
  h.inject(build_frame(spec(v6), payload(4, 30)));
  const std::vector<Bytes> wanted{payload(1, 10), payload(3, 20), payload(2, 4000), payload(4, 30)};
  EXPECT_EQ(heard(), wanted);
  EXPECT_EQ(h.stats().reassembled.get(), 1U);
  EXPECT_EQ(h.stats().reassembly_fails.get(), 0U);
  EXPECT_EQ(stats.rx_packets.get(), 4U);
}

TEST_P(Fragments, TheLongestDatagram) {
  const size_t n = v6 ? 65'527 : 65'507;
  for (const Bytes& f : fragments(5, n)) h.inject(f);
  const auto got = heard();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_TRUE(got[0] == payload(5, n));
}

TEST_P(Fragments, AHarmedOneIsNotHeard) {
  auto all = fragments(6, 4000);
  all[1][1000] ^= std::byte{1};
  const uint64_t bad = h.stats().rx_bad_checksum.get();
  for (const Bytes& f : all) h.inject(f);
  EXPECT_TRUE(heard().empty());
  EXPECT_EQ(h.stats().rx_bad_checksum.get(), bad + 1);
}

/// The UDP length may say that there is none of what came.
TEST_P(Fragments, AnEmptyDatagramInALongPacket) {
  if (v6) return;  // whose checksum is not left out
  Bytes whole = build_frame(spec(v6), payload(1, 16));
  set16(whole, 14 + 20 + 4, 8);
  set16(whole, 14 + 20 + 6, 0);
  for (const Bytes& f : cut(whole, v6, 7, 16)) h.inject(f);
  EXPECT_EQ(heard(), std::vector<Bytes>{Bytes{}});
}

TEST_P(Fragments, WhereARuleMaySeeThemNoneIsTaken) {
  const auto all = fragments(7, 2000);
  h.inject(all[0]);
  h.engine().host().take_fragments(false);
  h.inject(all[1]);
  for (const Bytes& f : fragments(8, 2000)) h.inject(f);
  EXPECT_TRUE(heard().empty());
  h.engine().host().take_fragments(true);
  for (const Bytes& f : fragments(9, 2000)) h.inject(f);
  EXPECT_EQ(heard().size(), 1U);
}

TEST_P(Fragments, AnIncompleteOneGoesInTime) {
  const auto all = fragments(7, 4000);
  h.inject(all[0]);
  h.inject(all[2]);
  h.pass(Duration::s(v6 ? 59 : 29));
  EXPECT_EQ(h.stats().reassembly_fails.get(), 0U);
  h.pass(Duration::s(2));
  EXPECT_EQ(h.stats().reassembly_fails.get(), 1U);
  h.inject(all[1]);
  EXPECT_TRUE(heard().empty());
}

TEST_P(Fragments, AFloodLeavesRoomForOthers) {
  for (uint32_t i = 0; i < 20'000; ++i) {
    const auto all = fragments(i, 2000);
    h.inject(all[i % 2]);
  }
  EXPECT_GT(free(), h.stats().pool_size.get() / 2);
  for (const Bytes& f : fragments(30'000, 4000)) h.inject(f);
  EXPECT_EQ(heard().size(), 1U);
}

/// What stands between may cut a segment, where nothing forbids it.
TEST_P(Fragments, ASegmentIsHeard) {
  Listening& l = h.listen(7000, 16, {}, v6);
  Peer p(h, v6 ? "fd11::7" : "11.0.0.7", 5000, 7000);
  p.timestamps = false;  // build_frame() writes no options
  ASSERT_TRUE(p.connect());
  Conn* const c = h.accept(l);
  ASSERT_NE(c, nullptr);
  FrameSpec s = spec(v6, IpProto::kTcp);
  s.seq = p.nxt.value();
  s.ack = p.ack.value();
  const Bytes data = payload(1, 1000);
  for (const Bytes& f : cut(build_frame(s, data), v6, 9, 8)) h.inject(f);
  EXPECT_EQ(h.stats().reassembled.get(), 1U);
  const std::string got = h.read(*c);
  ASSERT_EQ(got.size(), 1000U);
  EXPECT_EQ(std::memcmp(got.data(), data.data(), 1000), 0);
  h.close(*c, true);
  h.close(l);
  h.forget_heard();
}

}  // namespace
}  // namespace vireo::test
