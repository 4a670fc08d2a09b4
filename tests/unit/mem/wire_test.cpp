// The test wire itself: each impairment does what it says, counts it, and replays exactly.
#include "tests/apparatus/mem/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace vireo {
namespace {

constexpr Instant kStart = Instant::from_ns(1'000'000);

/// A frame that carries its number behind an Ethernet header and some filling.
std::vector<std::byte> numbered(uint32_t number, size_t size = 64) {
  std::vector<std::byte> f(size, std::byte{0x5a});
  std::memcpy(f.data() + 20, &number, sizeof number);
  return f;
}

uint32_t number_of(std::span<const std::byte> f) {
  uint32_t n;
  std::memcpy(&n, f.data() + 20, sizeof n);
  return n;
}

struct Arrival {
  int64_t at_ns;
  std::vector<std::byte> frame;
  bool operator==(const Arrival&) const = default;
};

/// Sends `count` frames, one a microsecond, and lets all of them arrive.
std::vector<Arrival> run(MemWire& wire, uint32_t count, size_t size = 64) {
  for (uint32_t i = 0; i < count; ++i) wire.send(numbered(i, size), kStart + Duration::us(i));
  std::vector<Arrival> out;
  while (!wire.next_arrival().is_never()) {
    const Instant at = wire.next_arrival();
    while (auto f = wire.receive(at)) out.push_back({at.ns(), std::move(*f)});
  }
  return out;
}

std::vector<uint32_t> numbers(const std::vector<Arrival>& arrivals) {
  std::vector<uint32_t> out;
  for (const Arrival& a : arrivals) out.push_back(number_of(a.frame));
  return out;
}

TEST(MemWire, CleanWireDelaysOnly) {
  MemWire wire(1, {.delay = Duration::us(5)});
  const auto got = run(wire, 100);
  ASSERT_EQ(got.size(), 100U);
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(got[i].at_ns, (kStart + Duration::us(i + 5)).ns());
    EXPECT_EQ(got[i].frame, numbered(i));
  }
}

TEST(MemWire, NothingArrivesEarly) {
  MemWire wire(1, {.delay = Duration::us(5)});
  wire.send(numbered(0), kStart);
  EXPECT_EQ(wire.next_arrival(), kStart + Duration::us(5));
  EXPECT_FALSE(wire.receive(kStart + Duration::ns(4'999)));
  EXPECT_TRUE(wire.receive(kStart + Duration::us(5)));
  EXPECT_TRUE(wire.next_arrival().is_never());
}

TEST(MemWire, SameSeedReplaysAndAnotherDiffers) {
  const MemImpairments all{.loss = 0.05,
                           .burst_enter = 0.01,
                           .burst_leave = 0.3,
                           .delay = Duration::us(50),
                           .jitter = Duration::us(20),
                           .reorder = 0.05,
                           .duplicate = 0.05,
                           .corrupt = 0.05,
                           .bytes_per_second = 50'000'000};
  MemWire one(7, all), same(7, all), other(8, all);
  const auto first = run(one, 2000);
  EXPECT_EQ(first, run(same, 2000));
  EXPECT_NE(first, run(other, 2000));
}

TEST(MemWire, LossIsCountedAndNearItsRate) {
  MemWire wire(3, {.loss = 0.1});
  const auto got = run(wire, 10'000);
  EXPECT_EQ(wire.stats().lost + got.size(), 10'000U);
  EXPECT_NEAR(static_cast<double>(wire.stats().lost), 1000, 150);
}

TEST(MemWire, OneImpairmentLeavesTheDecisionsOfOthers) {
  MemWire loss(3, {.loss = 0.1});
  MemWire both(3, {.loss = 0.1, .duplicate = 0.2});
  auto unique = numbers(run(both, 1000));
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  EXPECT_EQ(numbers(run(loss, 1000)), unique);
  EXPECT_GT(both.stats().duplicated, 100U);
}

TEST(MemWire, BurstsAreLongerThanChance) {
  MemWire wire(5, {.burst_enter = 0.01, .burst_leave = 0.2});
  const auto got = numbers(run(wire, 20'000));
  uint64_t bursts = 0;
  for (size_t i = 1; i < got.size(); ++i) bursts += got[i] != got[i - 1] + 1;
  const double mean = static_cast<double>(wire.stats().burst_lost) / static_cast<double>(bursts);
  EXPECT_NEAR(mean, 5.0, 1.0);  // 1 / burst_leave
}

TEST(MemWire, JitterSpreadsButKeepsOrder) {
  MemWire wire(9, {.delay = Duration::us(10), .jitter = Duration::us(30)});
  const auto got = run(wire, 1000);
  const auto order = numbers(got);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  bool varied = false;
  for (uint32_t i = 0; i < got.size(); ++i) {
    const int64_t delay = got[i].at_ns - (kStart + Duration::us(i)).ns();
    EXPECT_GE(delay, 10'000);
    EXPECT_LT(delay, 40'000);
    varied |= delay > 20'000;
  }
  EXPECT_TRUE(varied);
}

TEST(MemWire, ReorderByPositionsIsExact) {
  MemWire wire(11, {.delay = Duration::us(1), .reorder = 1, .reorder_positions = 3});
  wire.send(numbered(0), kStart);
  auto clean = wire.impairments();
  clean.reorder = 0;
  wire.set_impairments(clean);
  for (uint32_t i = 1; i < 6; ++i) wire.send(numbered(i), kStart + Duration::us(i));
  std::vector<uint32_t> order;
  while (auto f = wire.receive(kStart + Duration::ms(10))) order.push_back(number_of(*f));
  EXPECT_EQ(order, (std::vector<uint32_t>{1, 2, 3, 0, 4, 5}));
  EXPECT_EQ(wire.stats().reordered, 1U);
}

TEST(MemWire, ReorderedFrameComesByTimeIfNothingPassesIt) {
  MemWire wire(11, {.reorder = 1, .reorder_positions = 3, .reorder_extra = Duration::us(70)});
  wire.send(numbered(0), kStart);
  EXPECT_EQ(wire.next_arrival(), kStart + Duration::us(70));
}

TEST(MemWire, CorruptionFlipsBitsBehindTheEthernetHeader) {
  MemWire wire(13, {.corrupt = 1, .corrupt_bits = 1});
  for (const Arrival& a : run(wire, 500)) {
    unsigned flipped = 0;
    size_t where = 0;
    // The number may be hit too, so that the original is found by comparing with every byte but
    // those.
    const auto clean = numbered(0);
    for (size_t i = 0; i < a.frame.size(); ++i) {
      if (i >= 20 && i < 24) continue;
      const int bits = std::popcount(std::to_integer<unsigned>(a.frame[i] ^ clean[i]));
      flipped += static_cast<unsigned>(bits);
      if (bits != 0) where = i;
    }
    EXPECT_LE(flipped, 1U);
    if (flipped == 1) {
      EXPECT_GE(where, 14U);
    }
  }
  EXPECT_EQ(wire.stats().corrupted, 500U);
}

TEST(MemWire, RateSpacesFramesAndDropsTheTail) {
  // 100 bytes at 10 MB/s take 10 us; one frame a microsecond fills the queue of 8.
  MemWire wire(17, {.bytes_per_second = 10'000'000, .queue_frames = 8});
  const auto got = run(wire, 100, 100);
  for (size_t i = 1; i < got.size(); ++i) EXPECT_GE(got[i].at_ns - got[i - 1].at_ns, 10'000);
  EXPECT_EQ(wire.stats().queue_full + got.size(), 100U);
  EXPECT_EQ(wire.stats().queue_peak, 8U);
  EXPECT_GT(wire.stats().queue_full, 70U);
}

TEST(MemWire, MtuCountsThePacketNotTheFrame) {
  MemWire wire(19, {.mtu = 1500});
  wire.send(numbered(0, 1514), kStart);
  wire.send(numbered(1, 1515), kStart);
  auto tagged = numbered(2, 1518);
  tagged[12] = std::byte{0x81};
  tagged[13] = std::byte{0x00};
  wire.send(tagged, kStart);
  EXPECT_EQ(wire.in_flight(), 2U);
  EXPECT_EQ(wire.stats().too_big, 1U);
}

TEST(MemWire, HooksDecideFrameByFrame) {
  MemWire wire(23, {});
  wire.set_filter([](std::span<const std::byte> f, uint64_t index) {
    EXPECT_EQ(number_of(f), index);
    if (index == 1) return MemVerdict::kDrop;
    if (index == 2) return MemVerdict::kDuplicate;
    if (index == 3) return MemVerdict::kHold;
    return MemVerdict::kPass;
  });
  EXPECT_EQ(numbers(run(wire, 5)), (std::vector<uint32_t>{0, 2, 2, 4}));
  wire.release_held(kStart + Duration::ms(1));
  EXPECT_EQ(wire.next_arrival(), kStart + Duration::ms(1));
  EXPECT_EQ(number_of(*wire.receive(wire.next_arrival())), 3U);
  EXPECT_EQ(wire.stats().dropped_by_hook, 1U);
}

TEST(MemWire, DropNextDropsExactlySoMany) {
  MemWire wire(29, {});
  wire.drop_next(3);
  EXPECT_EQ(numbers(run(wire, 5)), (std::vector<uint32_t>{3, 4}));
  EXPECT_EQ(wire.stats().dropped_by_hook, 3U);
}

uint16_t ipv4_sum(std::span<const std::byte> header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < 20; i += 2)
    sum += std::to_integer<uint32_t>(header[i]) << 8 | std::to_integer<uint32_t>(header[i + 1]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

TEST(MemWire, MarksCeOnlyOnCapablePacketsAndKeepsTheChecksumTrue) {
  const auto packet = [](std::byte tos) {
    std::vector<std::byte> f(64);
    f[12] = std::byte{8};
    f[14] = std::byte{0x45};
    f[15] = tos;
    f[17] = std::byte{50};
    f[22] = std::byte{64};
    f[23] = std::byte{6};
    f[26] = f[30] = std::byte{10};
    const uint16_t sum = ipv4_sum(std::span(f).subspan(14));
    f[24] = static_cast<std::byte>(sum >> 8);
    f[25] = static_cast<std::byte>(sum & 255);
    return f;
  };
  MemWire wire(31, {.bytes_per_second = 1'000'000, .ecn_mark_frames = 1});
  wire.send(packet(std::byte{2}), kStart);  // finds an empty queue
  wire.send(packet(std::byte{2}), kStart);
  wire.send(packet(std::byte{0}), kStart);  // not capable
  const Instant late = kStart + Duration::s(1);
  EXPECT_EQ(*wire.receive(late), packet(std::byte{2}));
  const auto marked = *wire.receive(late);
  EXPECT_EQ(std::to_integer<unsigned>(marked[15]), 3U);
  EXPECT_EQ(ipv4_sum(std::span(marked).subspan(14)), 0);
  EXPECT_EQ(*wire.receive(late), packet(std::byte{0}));
  EXPECT_EQ(wire.stats().ecn_marked, 1U);
}

}  // namespace
}  // namespace vireo
