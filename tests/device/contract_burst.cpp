// Devices that segment (TxFrame::mss): what they make of a burst, to the bit, and that it is taken
// whole or not at all.
#include "contract_burst.h"

#include <algorithm>
#include <cstring>

namespace vireo::test {
namespace {

constexpr uint8_t kFin = 0x01, kPsh = 0x08, kAck = 0x10, kCwr = 0x80;
constexpr size_t kV4Header = 14 + 20 + 20;

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BurstContract);

void BurstContract::SetUp() {
  DeviceContract::SetUp();
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_GT(pair_->device(0).caps().tso_max_bytes, 0U);
  for (const bool v6 : {false, true}) {
    FlowKey k = local_key(1);
    k.proto = IpProto::kTcp;
    k.v6 = v6;
    if (v6) k.local.addr = pair_->v6(1);
    auto rule = pair_->device(1).steer(k, FlowTag(0), queue(1));
    ASSERT_TRUE(rule) << rule.error().where;
    tcp_rules_.push_back(std::move(*rule));
  }
}

void BurstContract::TearDown() {
  tcp_rules_.clear();
  DeviceContract::TearDown();
}

FrameSpec BurstContract::tcp(bool v6) const {
  FrameSpec s = flow(0);
  s.proto = IpProto::kTcp;
  if (v6) {
    s.from.addr = pair_->v6(0);
    s.to.addr = pair_->v6(1);
  }
  s.seq = 0xfffffc00;
  s.ack = 77;
  s.flags = kAck | kPsh;
  return s;
}

std::vector<PacketRef> BurstContract::bodies(const Bytes& bytes, size_t each) {
  std::vector<PacketRef> all;
  for (size_t at = 0; at < bytes.size(); at += each)
    all.push_back(
        body_of(pool(0), std::span(bytes).subspan(at, std::min(each, bytes.size() - at))));
  return all;
}

bool BurstContract::send_burst(const FrameSpec& spec, const Bytes& payload,
                               const std::vector<PacketRef>& bodies, uint16_t mss, Doorbell bell) {
  Bytes whole = build_frame(spec, payload);
  const size_t n = header_bytes(spec);
  whole[n - 4] = whole[n - 3] = std::byte(0xa5);  // the checksum is the device's
  std::vector<PacketSlice> slices;
  for (const PacketRef& p : bodies) slices.push_back({p.get(), p->data_at, p->length});
  return queue(0).tx({std::span(whole).first(n), slices, mss}, bell);
}

std::vector<Bytes> BurstContract::cut(FrameSpec spec, const Bytes& payload, size_t mss) {
  std::vector<Bytes> all;
  const uint8_t flags = spec.flags;
  for (size_t at = 0; at < payload.size(); at += mss) {
    const auto part = std::span(payload).subspan(at, std::min(mss, payload.size() - at));
    const bool is_last = at + part.size() == payload.size();
    spec.flags = static_cast<uint8_t>(flags & ~(is_last ? 0 : kFin | kPsh) & ~(at == 0 ? 0 : kCwr));
    all.push_back(build_frame(spec, part));
    spec.seq += static_cast<uint32_t>(part.size());
    ++spec.ip_id;
  }
  return all;
}

void BurstContract::expect(const std::vector<Bytes>& frames) {
  const auto got = receive(1, frames.size());
  ASSERT_EQ(got.size(), frames.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].bytes, frames[i]) << "segment " << i;
    EXPECT_TRUE(checksums_hold(got[i].bytes)) << "segment " << i;
  }
  EXPECT_TRUE(stays_quiet(1));
}

namespace {

/// PSH and FIN on the last alone (RFC 9293 §3.9.1), CWR on the first alone (RFC 3168 §6.1.2), ECT
/// and ECE on all; identifications count up and wrap.
TEST_P(BurstContract, EachSegmentSaysWhatItShould) {
  const Bytes payload = numbered_payload(5, 3 * 700 + 123);
  FrameSpec spec = tcp();
  spec.flags = kAck | kPsh | kFin | kCwr | 0x40;
  spec.tos = 0x02;
  spec.ip_id = 0xfffe;
  auto parts = bodies(payload, 700);
  if (parts.size() > most_slices()) GTEST_SKIP() << "fewer slices";
  ASSERT_TRUE(send_burst(spec, payload, parts, 700));
  expect(cut(spec, payload, 700));
  parts.clear();
  reap_until_idle(0);
}

TEST_P(BurstContract, Ipv6) {
  const Bytes payload = numbered_payload(6, 2900);
  auto parts = bodies(payload, 1428);
  ASSERT_TRUE(send_burst(tcp(true), payload, parts, 1428));
  expect(cut(tcp(true), payload, 1428));
  parts.clear();
  reap_until_idle(0);
}

/// Slices are bytes of a stream: segments begin and end anywhere in them.
TEST_P(BurstContract, SegmentsAreCutAcrossSlices) {
  const Bytes payload = numbered_payload(7, 4000);
  for (const size_t each : {size_t{1333}, size_t{1001}}) {
    auto parts = bodies(payload, each);
    if (parts.size() > most_slices()) continue;
    for (const uint16_t mss : {uint16_t{1460}, uint16_t{1000}, uint16_t{333}, uint16_t{64}}) {
      ASSERT_TRUE(send_burst(tcp(), payload, parts, mss));
      expect(cut(tcp(), payload, mss));
    }
    parts.clear();
    reap_until_idle(0);
  }
}

/// As much as caps() allow and IP's length field can tell.
TEST_P(BurstContract, TheLargest) {
  const size_t most = std::min<size_t>(
      {pair_->device(0).caps().tso_max_bytes, 65'535 - 40, size_t{most_slices()} * 1460});
  const Bytes payload = numbered_payload(8, most);
  auto parts = bodies(payload, 1460);
  ASSERT_TRUE(send_burst(tcp(), payload, parts, 1460));
  expect(cut(tcp(), payload, 1460));
  parts.clear();
  reap_until_idle(0);
}

/// Order is kept between bursts and single frames, and one doorbell is for all before it.
TEST_P(BurstContract, BurstsAndFramesKeepTheirOrder) {
  const Bytes payload = numbered_payload(9, 2500);
  auto parts = bodies(payload, 1250);
  std::vector<Bytes> expected;
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(send(0, frame(0, i), Doorbell::kLater));
    expected.push_back(frame(0, i));
    FrameSpec spec = tcp();
    spec.seq = i;
    ASSERT_TRUE(send_burst(spec, payload, parts, 1000, Doorbell::kLater));
    for (Bytes& b : cut(spec, payload, 1000)) expected.push_back(std::move(b));
  }
  queue(0).tx_flush();
  expect(expected);
  parts.clear();
  reap_until_idle(0);
}

/// A segment of it is sent again while the device still reads it: nothing is written over.
TEST_P(BurstContract, ASegmentIsSentAgainBesideTheBurst) {
  const Bytes payload = numbered_payload(10, 2000);
  auto parts = bodies(payload, 1000);
  std::vector<Bytes> expected = cut(tcp(), payload, 1000);
  FrameSpec again = tcp();
  again.seq += 1000;
  again.window = 9;
  const Bytes second = build_frame(again, std::span(payload).subspan(1000));
  ASSERT_TRUE(send_burst(tcp(), payload, parts, 1000, Doorbell::kLater));
  const PacketSlice slice{parts[1].get(), parts[1]->data_at, parts[1]->length};
  ASSERT_TRUE(queue(0).tx({std::span(second).first(kV4Header), {&slice, 1}}, Doorbell::kLater));
  ASSERT_TRUE(send_burst(tcp(), payload, parts, 1000, Doorbell::kNow));
  expected.push_back(second);
  for (Bytes& b : cut(tcp(), payload, 1000)) expected.push_back(std::move(b));
  expect(expected);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(std::memcmp(parts[i]->data(), payload.data() + 1000 * i, 1000), 0);
  parts.clear();
  reap_until_idle(0);
}

TEST_P(BurstContract, AFullRingTakesNothingOfABurst) {
  const Bytes payload = numbered_payload(11, 2000);
  uint32_t sent = 0;
  bool is_refused = false;
  while (!is_refused && sent < 5000) {
    auto parts = bodies(payload, 1000);
    ASSERT_TRUE(parts[0] && parts[1]);
    const uint32_t free_before = pool(0).free_count();
    is_refused = !send_burst(tcp(), payload, parts, 1000, Doorbell::kLater);
    if (!is_refused) {
      ++sent;
      continue;
    }
    EXPECT_EQ(pool(0).free_count(), free_before);
    for (const PacketRef& p : parts) {
      EXPECT_EQ(p->refs, 1);
      EXPECT_EQ(p->device_refs, 0);
    }
  }
  EXPECT_TRUE(is_refused) << "the ring was never full";
  queue(0).tx_flush();
  EXPECT_EQ(receive(1, size_t{2} * sent).size(), size_t{2} * sent);
  EXPECT_TRUE(stays_quiet(1));
  reap_until_idle(0);
  auto parts = bodies(payload, 1000);
  ASSERT_TRUE(send_burst(tcp(), payload, parts, 1000));
  expect(cut(tcp(), payload, 1000));
  parts.clear();
  reap_until_idle(0);
}

TEST_P(BurstContract, CompletionDropsTheDevicesReferences) {
  const Bytes payload = numbered_payload(12, 3000);
  auto parts = bodies(payload, 1500);
  ASSERT_TRUE(send_burst(tcp(), payload, parts, 1000));
  for (const PacketRef& p : parts) EXPECT_EQ(p->refs, 1 + p->device_refs);
  EXPECT_EQ(receive(1, 3).size(), 3U);
  const auto end = std::chrono::steady_clock::now() + Milliseconds(5'000);
  while (parts[0]->device_refs + parts[1]->device_refs != 0 &&
         std::chrono::steady_clock::now() < end) {
    queue(0).tx_reap();
    pair_->progress();
  }
  for (const PacketRef& p : parts) {
    EXPECT_EQ(p->refs, 1);
    EXPECT_EQ(p->device_refs, 0);
  }
  parts.clear();
  EXPECT_EQ(pool(0).free_count(), idle_free_[0]);
}

TEST_P(BurstContract, ClosingWithABurstInFlightLeaksNothing) {
  const Bytes payload = numbered_payload(13, 3000);
  auto parts = bodies(payload, 1500);
  ASSERT_TRUE(send_burst(tcp(), payload, parts, 1000));
  ASSERT_TRUE(send_burst(tcp(), payload, parts, 1000, Doorbell::kLater));
  // TearDown closes and counts.
}

}  // namespace
}  // namespace vireo::test
