// The sending side: full rings, doorbells, who may write where, and whose references drop when.
#include <cstring>

#include "contract.h"

namespace vireo::test {
namespace {

using SteadyClock = std::chrono::steady_clock;

TEST_P(DeviceContract, FullRingTakesNothingAndLosesNothing) {
  const uint32_t limit = idle_free_[0];
  uint32_t sent = 0;
  bool refused = false;
  while (!refused && sent < limit) {
    const Bytes bytes = frame(0, sent);
    PacketRef body = body_of(pool(0), std::span(bytes).subspan(kHeader));
    if (!body) break;
    const PacketSlice slice{body.get(), body->data_at, body->length};
    const uint32_t free_before = pool(0).free_count();
    refused = !queue(0).tx({std::span(bytes).first(kHeader), {&slice, 1}}, Doorbell::kLater);
    if (refused) {
      EXPECT_EQ(body->refs, 1);
      EXPECT_EQ(body->device_refs, 0);
      EXPECT_EQ(pool(0).free_count(), free_before);
      EXPECT_EQ(std::memcmp(body->data(), bytes.data() + kHeader, body->length), 0);
    } else {
      ++sent;
    }
  }
  ASSERT_GT(sent, 0U);
  EXPECT_TRUE(refused) << "neither ring nor pool was ever full";
  queue(0).tx_flush();
  std::vector<Received> got = receive(1, sent);
  ASSERT_EQ(got.size(), sent);
  reap_until_idle(0);
  // The ring is usable again, for more than its size.
  const uint32_t total = sent + 3 * sent + 7;
  carry(got, sent, total, [&](uint32_t i) { return send(0, frame(0, i)); });
}

/// Round the ring and into a full one; every other head is written where the device would copy it.
TEST_P(DeviceContract, AHeadWrittenInPlaceArrivesAsOneThatIsCopied) {
  const uint32_t total = std::min(3 * idle_free_[0], 1000U);
  std::vector<Received> got;
  uint32_t in_place = 0;
  carry(got, 0, total, [&](uint32_t i) {
    const Bytes bytes = frame(0, i);
    std::byte* const there = i % 2 == 0 ? queue(0).head_place() : nullptr;
    if (there == nullptr) return send(0, bytes);
    const PacketRef body = body_of(pool(0), std::span(bytes).subspan(kHeader));
    if (!body) return false;
    std::memcpy(there, bytes.data(), kHeader);
    const PacketSlice slice{body.get(), body->data_at, body->length};
    const bool left = queue(0).tx({{there, kHeader}, {&slice, 1}}, Doorbell::kNow);
    in_place += left;
    return left;
  });
  EXPECT_GE(in_place, pair_->device(0).caps().kind == DeviceKind::kShm ? total / 4 : 0);
}

TEST_P(DeviceContract, FlushRingsForWhatWasQueued) {
  for (uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(send(0, frame(0, i), Doorbell::kLater));
  queue(0).tx_flush();
  const auto got = receive(1, 5);
  ASSERT_EQ(got.size(), 5U);
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(number_of(got[i].bytes, kHeader), i);
}

TEST_P(DeviceContract, RingingNowRingsForEarlierFramesToo) {
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(send(0, frame(0, i), Doorbell::kLater));
  ASSERT_TRUE(send(0, frame(0, 3), Doorbell::kNow));
  const auto got = receive(1, 4);
  ASSERT_EQ(got.size(), 4U);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(number_of(got[i].bytes, kHeader), i);
}

TEST_P(DeviceContract, FlushWithNothingQueuedIsHarmless) {
  queue(0).tx_flush();
  EXPECT_TRUE(stays_quiet(1));
  send_surely(0, frame(0, 1));
  EXPECT_EQ(receive(1, 1).size(), 1U);
}

/// Sends the bytes of `p` under a head of its own.
bool send_body(Queue& q, const Bytes& head, PacketRef& p, Doorbell bell) {
  const PacketSlice slice{p.get(), p->data_at, p->length};
  return q.tx({head, {&slice, 1}}, bell);
}

TEST_P(DeviceContract, AFrameInFlightIsNotOverwrittenByTheNextHead) {
  // A retransmission while the first copy is still queued: same body, another head.
  Bytes first = frame(0, 1, 300);
  Bytes second = first;
  second[0] = std::byte(0x02);
  for (size_t i = 6; i < 12; ++i) second[i] = std::byte(0x42);  // another source MAC
  const Bytes head1(first.begin(), first.begin() + kHeader);
  const Bytes head2(second.begin(), second.begin() + kHeader);
  PacketRef p = body_of(pool(0), std::span(first).subspan(kHeader));
  ASSERT_TRUE(send_body(queue(0), head1, p, Doorbell::kLater));
  ASSERT_TRUE(send_body(queue(0), head2, p, Doorbell::kLater));
  ASSERT_TRUE(send_body(queue(0), head1, p, Doorbell::kNow));
  ASSERT_TRUE(send_body(queue(0), head2, p, Doorbell::kNow));
  const auto got = receive(1, 4);
  ASSERT_EQ(got.size(), 4U);
  EXPECT_EQ(got[0].bytes, first);
  EXPECT_EQ(got[1].bytes, second);
  EXPECT_EQ(got[2].bytes, first);
  EXPECT_EQ(got[3].bytes, second);
  p.reset();
  reap_until_idle(0);
}

TEST_P(DeviceContract, ValidBytesBeforeTheSliceStay) {
  // Only the tail of a buffer is sent again: what lies before it is payload still owed, not
  // headroom.
  const Bytes whole = frame(0, 3, kHeader + 400);
  PacketRef p = body_of(pool(0), std::span(whole).subspan(kHeader));
  constexpr uint16_t kSkip = 150;
  const Bytes tail = build_frame(flow(0), std::span(whole).subspan(kHeader + kSkip));
  const PacketSlice slice{p.get(), static_cast<uint16_t>(p->data_at + kSkip),
                          static_cast<uint16_t>(p->length - kSkip)};
  ASSERT_TRUE(queue(0).tx({std::span(tail).first(kHeader), {&slice, 1}}, Doorbell::kNow));
  auto got = receive(1, 1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].bytes, tail);
  EXPECT_EQ(std::memcmp(p->data(), whole.data() + kHeader, p->length), 0)
      << "the device wrote over payload";
  const PacketSlice all{p.get(), p->data_at, p->length};
  ASSERT_TRUE(queue(0).tx({std::span(whole).first(kHeader), {&all, 1}}, Doorbell::kNow));
  got = receive(1, 1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].bytes, whole);
  p.reset();
  reap_until_idle(0);
}

TEST_P(DeviceContract, BodyWithoutHeadroomIsSent) {
  const Bytes whole = frame(0, 4, kHeader + 64);
  PacketRef p(pool(0).take());
  p->data_at = 3;
  p->length = 64;
  std::memcpy(p->data(), whole.data() + kHeader, 64);
  const PacketSlice slice{p.get(), p->data_at, p->length};
  ASSERT_TRUE(queue(0).tx({std::span(whole).first(kHeader), {&slice, 1}}, Doorbell::kNow));
  const auto got = receive(1, 1);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].bytes, whole);
  p.reset();
  reap_until_idle(0);
}

TEST_P(DeviceContract, CompletionsDropExactlyTheDevicesReferences) {
  std::vector<PacketRef> kept;
  for (uint32_t i = 0; i < 20; ++i) {
    const Bytes bytes = frame(0, i);
    kept.push_back(body_of(pool(0), std::span(bytes).subspan(kHeader)));
    ASSERT_TRUE(kept.back());
    PacketRef& p = kept.back();
    ASSERT_TRUE(
        send_body(queue(0), Bytes(bytes.begin(), bytes.begin() + kHeader), p, Doorbell::kNow));
    EXPECT_EQ(p->refs, 1 + p->device_refs);
    EXPECT_LE(p->device_refs, 1);
  }
  EXPECT_EQ(receive(1, 20).size(), 20U);
  const auto end = SteadyClock::now() + Milliseconds(5'000);
  const auto idle = [&] {
    for (const PacketRef& p : kept)
      if (p->device_refs != 0) return false;
    return true;
  };
  while (!idle() && SteadyClock::now() < end) {
    queue(0).tx_reap();
    pair_->progress();
  }
  for (const PacketRef& p : kept) {
    EXPECT_EQ(p->device_refs, 0);
    EXPECT_EQ(p->refs, 1) << "the sender's own reference is not the device's to drop";
  }
  kept.clear();
  reap_until_idle(0);
  EXPECT_EQ(pool(0).free_count(), idle_free_[0]);
}

TEST_P(DeviceContract, ClosingWithFramesInFlightLeaksNothing) {
  for (uint32_t i = 0; i < 10; ++i)
    ASSERT_TRUE(send(0, frame(0, i), i < 5 ? Doorbell::kNow : Doorbell::kLater));
  // TearDown closes and counts.
}

}  // namespace
}  // namespace vireo::test
