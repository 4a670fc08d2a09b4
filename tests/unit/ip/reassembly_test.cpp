// Reassembly against RFC 791, RFC 8200 §4.5, RFC 5722 and RFC 3168 §5.3: frames cut up by other
// code than the library's, in whatever order, beside whatever else may come.
#include "stack/ip/reassembly.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/unit/wire/frames.h"

namespace vireo::ip {
namespace {

using namespace testing_frames;

constexpr size_t kFrames = 4096;

Instant at(int64_t s) { return Instant::from_ns(s * 1'000'000'000); }

struct Cut {
  size_t from = 0, bytes = 0;
  bool more = true;
};

/// A UDP frame of either family that is to be cut.
struct Whole {
  Spec spec;
  uint32_t id = 0x1234;

  explicit Whole(bool v6, size_t payload) {
    if (v6) spec = v6_spec();
    spec.proto = 17;
    spec.fragment = 0;
    spec.payload.resize(payload);
    for (size_t i = 0; i < payload; ++i) spec.payload[i] = static_cast<uint8_t>(i * 7 + i / 251);
  }
  bool v6() const { return !spec.src.is_v4(); }
  Bytes frame() const { return make_frame(spec); }
  Bytes data() const { return make_l4(spec); }

  Bytes fragment(const Cut& c, const Bytes& of, uint8_t tos = 0) const {
    Bytes f = append(spec.dst_mac, spec.src_mac);
    for (const uint16_t tci : spec.tags) {
      put16(f, 0x8100);
      put16(f, tci);
    }
    const auto place = static_cast<uint32_t>(c.from);
    if (v6()) {
      put16(f, 0x86dd);
      put32(f, 0x60000000U | uint32_t{tos} << 20);
      put16(f, static_cast<uint32_t>(8 + c.bytes));
      put(f, {44, spec.ttl});
      f = append(append(f, address_bytes(spec.src)), address_bytes(spec.dst));
      put(f, {spec.proto, 0});
      put16(f, place | (c.more ? 1 : 0));
      put32(f, id);
    } else {
      put16(f, 0x0800);
      Bytes ip;
      put(ip, {0x45, tos});
      put16(ip, static_cast<uint32_t>(20 + c.bytes));
      put16(ip, id);
      put16(ip, place / 8 | (c.more ? 0x2000 : 0));
      put(ip, {spec.ttl, spec.proto});
      put16(ip, 0);
      ip = append(append(ip, address_bytes(spec.src)), address_bytes(spec.dst));
      set16(ip, 10, naive_checksum(ip));
      f = append(f, ip);
    }
    f.insert(f.end(), of.begin() + static_cast<long>(c.from),
             of.begin() + static_cast<long>(c.from + c.bytes));
    if (f.size() < 60) f.resize(60, 0xee);  // Ethernet's padding
    return f;
  }
  Bytes fragment(const Cut& c) const { return fragment(c, data()); }
  /// In pieces of `step` bytes, a multiple of 8.
  std::vector<Cut> cuts(size_t step) const {
    const size_t n = data().size();
    std::vector<Cut> all;
    for (size_t i = 0; i < n; i += step) all.push_back({i, std::min(step, n - i), i + step < n});
    return all;
  }
};

class ReassemblyTest : public testing::TestWithParam<bool> {
 protected:
  ~ReassemblyTest() override {
    r.clear();
    EXPECT_EQ(r.buffers(), 0U);
    EXPECT_EQ(pool.free_count(), kFrames) << "a buffer is lost";
  }
  /// The frame that the fragment completes; empty: none.
  Bytes add(const Bytes& fragment, Instant now = at(1), uint32_t wire = 1) {
    PacketChain chain;
    for (size_t i = 0; i < fragment.size();) {  // as long ones lie in several
      PacketRef p(pool.take());
      const size_t n = std::min<size_t>(1600, fragment.size() - i);
      std::memcpy(p->data(), fragment.data() + i, n);
      p->length = static_cast<uint16_t>(n);
      i += n;
      chain.push_back(std::move(p));
    }
    PacketRef first = chain.pop_front();
    const auto f = wire::parse_frame(first->bytes(), chain.bytes());
    EXPECT_EQ(f.error, wire::ParseError::kFragment);
    PacketChain frame(std::move(first));
    frame.append(std::move(chain));
    PacketChain whole = r.add(f, wire, std::move(frame), now);
    Bytes out;
    for (PacketBuf* p = whole.front(); p != nullptr; p = p->next)
      for (const std::byte b : p->bytes()) out.push_back(std::to_integer<uint8_t>(b));
    return out;
  }
  /// With a checksum of the header, which the library leaves as it was.
  static Bytes sound(Bytes frame) {
    if (frame.empty() || frame[12] != 0x08) return frame;
    set16(frame, 24, 0);
    const Bytes ip(frame.begin() + 14, frame.begin() + 34);
    set16(frame, 24, naive_checksum(ip));
    return frame;
  }
  Bytes expected(const Whole& w, uint8_t tos = 0) {
    Whole u = w;
    u.spec.id = static_cast<uint16_t>(w.id);
    u.spec.tos = tos;
    return u.frame();
  }

  std::vector<std::byte> memory = std::vector<std::byte>(kFrames * 2048 + 2048);
  PacketPool pool{aligned(), 2048};
  Reassembly r{kFrames / 8};

 private:
  std::span<std::byte> aligned() {
    void* start = memory.data();
    size_t room = memory.size();
    std::align(2048, kFrames * 2048, start, room);
    return {static_cast<std::byte*>(start), kFrames * 2048};
  }
};
INSTANTIATE_TEST_SUITE_P(Families, ReassemblyTest, testing::Bool(),
                         [](const auto& i) { return i.param ? "v6" : "v4"; });

TEST_P(ReassemblyTest, InAnyOrderItIsTheFrameThatWasCut) {
  const Whole w(GetParam(), 100);
  const auto cuts = w.cuts(32);
  ASSERT_EQ(cuts.size(), 4U);
  std::vector<size_t> order{0, 1, 2, 3};
  do {
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(add(w.fragment(cuts[order[i]])).empty());
    EXPECT_EQ(sound(add(w.fragment(cuts[order[3]]))), expected(w));
    EXPECT_EQ(r.buffers(), 0U);
  } while (std::ranges::next_permutation(order).found);
  EXPECT_EQ(r.fails(), 0U);
}

TEST_P(ReassemblyTest, ALongestPacketAndATaggedOne) {
  Whole w(GetParam(), GetParam() ? 65527 : 65507);
  Bytes got;
  for (const Cut& c : w.cuts(1480)) got = add(w.fragment(c));
  EXPECT_TRUE(sound(got) == expected(w)) << got.size();
  Whole tagged(GetParam(), 2000);
  tagged.spec.tags = {5};
  for (const Cut& c : tagged.cuts(1480)) got = add(tagged.fragment(c));
  const Bytes as_it_was = tagged.frame();
  ASSERT_EQ(got.size(), as_it_was.size());
  EXPECT_TRUE(std::equal(got.end() - 2000, got.end(), tagged.spec.payload.begin()));
  EXPECT_EQ(Bytes(got.begin(), got.begin() + 16), Bytes(as_it_was.begin(), as_it_was.begin() + 16));
}

/// RFC 8200 §4.5, RFC 6946: one that is first and last is whole already.
TEST_P(ReassemblyTest, AFragmentThatIsAll) {
  const Whole w(GetParam(), 40);
  if (!GetParam()) return;  // IPv4's says nothing of fragments then
  EXPECT_EQ(add(w.fragment({0, 48, false})), expected(w));
}

TEST_P(ReassemblyTest, OneThatIsAllMeetsNoOther) {
  if (!GetParam()) return;
  const Whole w(true, 100), all(true, 40);
  const auto cuts = w.cuts(56);
  EXPECT_TRUE(add(w.fragment(cuts[0])).empty());
  EXPECT_EQ(add(all.fragment({0, 48, false})), expected(all));
  EXPECT_EQ(add(w.fragment(cuts[1])), expected(w));
}

/// What was never completed would else be mixed with the next packet of its id.
TEST_P(ReassemblyTest, AnIdThatComesRoundBeginsAnew) {
  Whole w(GetParam(), 100);
  const auto cuts = w.cuts(56);
  Whole lost = w;
  lost.spec.payload[0] ^= 1;
  EXPECT_TRUE(add(lost.fragment(cuts[0])).empty());
  const uint32_t id = w.id;
  for (uint32_t i = 0; i < 1100; ++i) {
    w.id = id + 1 + i;
    EXPECT_TRUE(add(w.fragment(cuts[0])).empty());
    EXPECT_FALSE(add(w.fragment(cuts[1])).empty());
  }
  w.id = id;
  EXPECT_TRUE(add(w.fragment(cuts[0])).empty());
  EXPECT_EQ(sound(add(w.fragment(cuts[1]))), expected(w));
}

/// One source leaves room for others.
TEST_P(ReassemblyTest, AFloodOfOneSourceEndsItsOwnAlone) {
  const Whole w(GetParam(), 100);
  const auto cuts = w.cuts(56);
  EXPECT_TRUE(add(w.fragment(cuts[0])).empty());
  Whole flood = w;
  flood.spec.src = *IpAddr::parse(GetParam() ? "2001:db8::66" : "10.0.0.66");
  for (uint32_t i = 0; i < 1000; ++i) {
    flood.id = i;
    EXPECT_TRUE(add(flood.fragment(cuts[0])).empty());
  }
  EXPECT_EQ(sound(add(w.fragment(cuts[1]))), expected(w));
}

TEST_P(ReassemblyTest, WithoutRoomTheOldestGoes) {
  const Whole w(GetParam(), 100);
  EXPECT_TRUE(add(w.fragment(w.cuts(56)[0])).empty());
  r.refuse();
  EXPECT_EQ(r.buffers(), 0U);
  EXPECT_EQ(r.fails(), 2U);
  r.refuse();
  EXPECT_EQ(r.fails(), 3U);
}

TEST_P(ReassemblyTest, WhatComesTwiceIsIgnored) {
  const Whole w(GetParam(), 100);
  const auto cuts = w.cuts(32);
  for (const size_t i : {0U, 0U, 2U, 2U, 0U, 1U, 1U}) EXPECT_TRUE(add(w.fragment(cuts[i])).empty());
  EXPECT_TRUE(add(w.fragment({8, 16, true})).empty()) << "a part of what is there";
  EXPECT_TRUE(add(w.fragment({24, 48, true})).empty()) << "of two that follow one another";
  EXPECT_EQ(sound(add(w.fragment(cuts[3]))), expected(w));
  EXPECT_EQ(r.fails(), 0U);
}

TEST_P(ReassemblyTest, OverlapsDropAll) {
  const Whole w(GetParam(), 200);
  const Cut first{0, 64, true}, third{128, 80, false};
  for (const Cut& over : {Cut{56, 72, true}, Cut{64, 72, true}, Cut{32, 96, true}, Cut{0, 72, true},
                          Cut{64, 64, false}, Cut{128, 80, true}, Cut{208, 0, false}}) {
    if (over.bytes == 0) continue;
    const bool is_same = over.from == third.from;  // says that more comes: nothing that contradicts
    ASSERT_TRUE(add(w.fragment(first)).empty());
    ASSERT_TRUE(add(w.fragment(third)).empty());
    const uint64_t fails = r.fails();
    EXPECT_TRUE(add(w.fragment(over)).empty());
    if (is_same) {
      EXPECT_EQ(sound(add(w.fragment({64, 64, true}))), expected(w));
      continue;
    }
    EXPECT_EQ(r.fails(), fails + 1) << over.from << "+" << over.bytes;
    EXPECT_EQ(r.buffers(), 0U);
  }
}

TEST_P(ReassemblyTest, PacketsAreNotMixed) {
  const Whole w(GetParam(), 100);
  Whole other_id = w, other_source = w, other_to = w;
  other_id.id = 0x4321;
  other_source.spec.src = *IpAddr::parse(GetParam() ? "2001:db8::9" : "10.0.0.9");
  other_to.spec.dst = *IpAddr::parse(GetParam() ? "2001:db8::8" : "10.0.0.8");
  const std::vector<Whole> all{w, other_id, other_source, other_to};
  const auto cuts = w.cuts(56);
  for (const Whole& x : all) EXPECT_TRUE(add(x.fragment(cuts[1])).empty());
  for (const Whole& x : all) EXPECT_EQ(sound(add(x.fragment(cuts[0]))), expected(x));
}

TEST_P(ReassemblyTest, ALinkLocalAddressIsOfItsWire) {
  if (!GetParam()) return;
  Whole w(true, 100);
  w.spec.src = *IpAddr::parse("fe80::2");
  const auto cuts = w.cuts(56);
  EXPECT_TRUE(add(w.fragment(cuts[0]), at(1), 1).empty());
  EXPECT_TRUE(add(w.fragment(cuts[1]), at(1), 2).empty());
  EXPECT_FALSE(add(w.fragment(cuts[1]), at(1), 1).empty());
}

TEST_P(ReassemblyTest, WhatIsNotWholeInTimeIsDropped) {
  const Whole w(GetParam(), 100);
  const auto cuts = w.cuts(56);
  const int64_t seconds = GetParam() ? 60 : 30;
  EXPECT_TRUE(r.first_expiry().is_never());
  add(w.fragment(cuts[0]), at(1));
  EXPECT_EQ(r.first_expiry(), at(1 + seconds));
  r.expire(at(seconds));
  EXPECT_EQ(r.buffers(), 1U);
  r.expire(at(1 + seconds));
  EXPECT_EQ(r.buffers(), 0U);
  EXPECT_EQ(r.fails(), 1U);
  EXPECT_TRUE(r.first_expiry().is_never());
  EXPECT_TRUE(add(w.fragment(cuts[1]), at(100)).empty()) << "the first is gone";
}

TEST_P(ReassemblyTest, AFloodIsBoundedAndTheNewestIsMadeWhole) {
  Whole w(GetParam(), 3000);
  const auto cuts = w.cuts(1480);
  for (uint32_t i = 0; i < 10'000; ++i) {
    w.id = i % 65'536;
    EXPECT_TRUE(add(w.fragment(cuts[i % 2])).empty());
    ASSERT_LE(r.buffers(), kFrames / 8);
  }
  w.id = 60'000;
  for (const size_t i : {2U, 1U}) EXPECT_TRUE(add(w.fragment(cuts[i])).empty());
  EXPECT_EQ(sound(add(w.fragment(cuts[0]))), expected(w));
}

TEST_P(ReassemblyTest, APacketOfTinyFragmentsIsBounded) {
  const Whole w(GetParam(), 60'000);
  const Bytes data = w.data();
  for (size_t i = 8; i < 60'000; i += 16) {
    EXPECT_TRUE(add(w.fragment({i, 8, true}, data)).empty());
    ASSERT_LE(r.buffers(), Reassembly::kMaxBuffers);
  }
}

TEST_P(ReassemblyTest, WhatContradictsItselfIsDropped) {
  const Whole w(GetParam(), 65'000);
  const Bytes data = append(w.data(), Bytes(4096));
  // Linux: of IPv4 the multiple of 8 in it is taken.
  EXPECT_TRUE(add(w.fragment({0, 30, true}, data)).empty()) << "no multiple of 8";
  EXPECT_EQ(r.buffers(), GetParam() ? 0U : 1U);
  const uint64_t fails = r.fails();
  r.clear();
  EXPECT_TRUE(add(w.fragment({65'528, 16, false}, data)).empty()) << "beyond the longest packet";
  EXPECT_EQ(r.buffers(), 0U);
  EXPECT_EQ(r.fails(), 2U) << "one of them by clear() or by itself";
  EXPECT_EQ(fails, GetParam() ? 1U : 0U);
  EXPECT_TRUE(add(w.fragment({128, 40, false}, data)).empty());
  EXPECT_TRUE(add(w.fragment({64, 40, false}, data)).empty()) << "two ends";
  EXPECT_EQ(r.buffers(), 0U);
  EXPECT_TRUE(add(w.fragment({128, 40, false}, data)).empty());
  EXPECT_TRUE(add(w.fragment({192, 40, true}, data)).empty()) << "behind the end";
  EXPECT_EQ(r.buffers(), 0U);
  // IPv4's length counts the header, too.
  if (GetParam()) return;
  for (size_t i = 0; i < 65'520; i += 1456) {
    const bool more = i + 1456 < 65'520;
    EXPECT_TRUE(add(w.fragment({i, 1456, more}, data)).empty());
  }
  EXPECT_EQ(r.buffers(), 0U);
}

TEST_P(ReassemblyTest, AHeaderThatWasHarmedIsDropped) {
  if (GetParam()) return;  // IPv6 has no checksum of its header
  const Whole w(false, 100);
  Bytes f = w.fragment(w.cuts(56)[0]);
  f[14 + 8] ^= 1;
  EXPECT_TRUE(add(f).empty());
  EXPECT_EQ(r.buffers(), 0U);
}

/// RFC 3168 §5.3; a packet whose fragments do not agree on whether marks are known is dropped.
TEST_P(ReassemblyTest, AMarkOfOneIsAMarkOfAll) {
  struct Row {
    uint8_t first, second, whole;
    bool is_sound;
  };
  for (const Row& row : {Row{0, 0, 0, true}, Row{2, 2, 2, true}, Row{2, 3, 3, true},
                         Row{3, 1, 3, true}, Row{0, 3, 0, false}, Row{2, 0, 0, false}}) {
    const Whole w(GetParam(), 100);
    const auto cuts = w.cuts(56);
    EXPECT_TRUE(add(w.fragment(cuts[0], w.data(), row.first)).empty());
    const Bytes got = add(w.fragment(cuts[1], w.data(), row.second));
    EXPECT_EQ(!got.empty(), row.is_sound);
    if (row.is_sound) {
      EXPECT_EQ(sound(got), expected(w, row.whole)) << int{row.second};
    }
  }
}

TEST_P(ReassemblyTest, ManyAtOnceCutAtRandom) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<size_t, Bytes>> fragments;
    std::vector<Whole> wholes;
    for (size_t n = 0; n < 4; ++n) {
      Whole w(GetParam(), 20 + random() % 4000);
      w.id = static_cast<uint32_t>(round) * 4 + static_cast<uint32_t>(n);
      w.spec.payload[0] = static_cast<uint8_t>(random());
      const Bytes data = w.data();
      for (size_t i = 0; i < data.size();) {
        size_t bytes = 8 * (1 + random() % 185);
        bytes = std::min(bytes, data.size() - i);
        if (i == 0 && bytes == data.size()) bytes = 8;
        const Bytes f = w.fragment({i, bytes, i + bytes < data.size()}, data);
        fragments.emplace_back(n, f);
        if (random() % 8 == 0) fragments.emplace_back(n, f);
        i += bytes;
      }
      wholes.push_back(std::move(w));
    }
    std::ranges::shuffle(fragments, random);
    std::vector<bool> done(4);
    for (const auto& [n, f] : fragments) {
      const Bytes got = add(f);
      if (got.empty()) continue;
      EXPECT_TRUE(sound(got) == expected(wholes[n]));
      done[n] = true;
    }
    EXPECT_EQ(std::ranges::count(done, true), 4) << round;
  }
}

}  // namespace
}  // namespace vireo::ip
