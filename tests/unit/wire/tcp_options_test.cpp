#include "stack/wire/tcp_options.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace vireo::wire {
namespace {

using Bytes = std::vector<uint8_t>;

TcpOptions parse(const Bytes& b, bool syn = false) {
  // Its exact size on the heap: reading beyond is seen by the sanitizer.
  auto copy = std::make_unique<uint8_t[]>(b.size());
  std::copy(b.begin(), b.end(), copy.get());
  return parse_tcp_options({copy.get(), b.size()}, syn);
}

TEST(TcpOptions, AlignedTimestamps) {
  const Bytes b = {1, 1, 8, 10, 0x01, 0x02, 0x03, 0x04, 0xf1, 0xf2, 0xf3, 0xf4};
  for (bool syn : {false, true}) {
    const TcpOptions o = parse(b, syn);
    EXPECT_TRUE(o.has_timestamps);
    EXPECT_EQ(o.ts_val, 0x01020304U);
    EXPECT_EQ(o.ts_ecr, 0xf1f2f3f4U);
    const TcpOptions slow = parse_tcp_options_slow(b, syn);
    EXPECT_EQ(slow.ts_val, o.ts_val);
    EXPECT_EQ(slow.ts_ecr, o.ts_ecr);
  }
}

// The SYN of Linux: MSS 1460, SACK permitted, timestamps, NOP, window scale 7.
const Bytes kLinuxSyn = {2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7};

TEST(TcpOptions, SynOfLinux) {
  const TcpOptions o = parse(kLinuxSyn, true);
  EXPECT_TRUE(o.has_mss && o.has_window_scale && o.sack_permitted && o.has_timestamps);
  EXPECT_EQ(o.mss, 1460);
  EXPECT_EQ(o.window_scale, 7);
  EXPECT_EQ(o.ts_val, 9U);
  const TcpOptions late = parse(kLinuxSyn, false);
  EXPECT_FALSE(late.has_mss || late.has_window_scale || late.sack_permitted) << "only with SYN";
  EXPECT_TRUE(late.has_timestamps);
}

// Each byte of it changed to each value: read at once or option by option, it says the same.
TEST(TcpOptions, UsualSynIsWhatItsOptionsSay) {
  for (size_t at = 0; at < kLinuxSyn.size(); ++at)
    for (unsigned v = 0; v < 256; ++v) {
      Bytes b = kLinuxSyn;
      b[at] = static_cast<uint8_t>(v);
      const TcpOptions o = parse(b, true);
      const TcpOptions slow = parse_tcp_options_slow(b, true);
      EXPECT_EQ(o.has_mss, slow.has_mss) << at << ' ' << v;
      EXPECT_EQ(o.mss, slow.mss) << at << ' ' << v;
      EXPECT_EQ(o.sack_permitted, slow.sack_permitted) << at << ' ' << v;
      EXPECT_EQ(o.has_timestamps, slow.has_timestamps) << at << ' ' << v;
      EXPECT_EQ(o.ts_val, slow.ts_val) << at << ' ' << v;
      EXPECT_EQ(o.ts_ecr, slow.ts_ecr) << at << ' ' << v;
      EXPECT_EQ(o.has_window_scale, slow.has_window_scale) << at << ' ' << v;
      EXPECT_EQ(o.window_scale, slow.window_scale) << at << ' ' << v;
    }
  TcpOptions o;
  EXPECT_TRUE(parse_usual_syn(kLinuxSyn, o));
}

TEST(TcpOptions, EveryTruncationKeepsWhatWasWhole) {
  for (size_t n = 0; n <= kLinuxSyn.size(); ++n) {
    const TcpOptions o =
        parse(Bytes(kLinuxSyn.begin(), kLinuxSyn.begin() + static_cast<long>(n)), true);
    EXPECT_EQ(o.has_mss, n >= 4) << n;
    EXPECT_EQ(o.sack_permitted, n >= 6) << n;
    EXPECT_EQ(o.has_timestamps, n >= 16) << n;
    EXPECT_EQ(o.has_window_scale, n >= 20) << n;
  }
}

TEST(TcpOptions, MalformedEndsTheWalk) {
  EXPECT_FALSE(parse({253, 0, 2, 4, 5, 180}, true).has_mss) << "length 0";
  EXPECT_FALSE(parse({253, 1, 2, 4, 5, 180}, true).has_mss) << "length 1";
  EXPECT_FALSE(parse({253, 9, 2, 4, 5, 180}, true).has_mss) << "longer than what is left";
  EXPECT_FALSE(parse({0, 2, 4, 5, 180}, true).has_mss) << "end of list";
  EXPECT_TRUE(parse({253, 3, 99, 2, 4, 5, 180}, true).has_mss) << "unknown, but whole: passed over";
  EXPECT_TRUE(parse({3, 4, 7, 7, 2, 4, 5, 180}, true).has_mss)
      << "known kind of a wrong length: passed over";
  EXPECT_FALSE(parse({3, 4, 7, 7, 2, 4, 5, 180}, true).has_window_scale);
  EXPECT_FALSE(parse({8, 9, 0, 0, 0, 0, 0, 0, 0}).has_timestamps);
  EXPECT_FALSE(parse({2}, true).has_mss) << "a kind without a length";
}

TEST(TcpOptions, ValuesThatHurt) {
  EXPECT_FALSE(parse({2, 4, 0, 0}, true).has_mss) << "MSS 0";
  EXPECT_EQ(parse({3, 3, 200}, true).window_scale, 14) << "RFC 7323 §2.3";
  EXPECT_EQ(parse({2, 4, 1, 0, 2, 4, 2, 0}, true).mss, 512) << "the last one counts";
}

TEST(TcpOptions, SackBlocks) {
  const Bytes three = {1,    1,    5, 26, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xff,
                       0xff, 0xff, 0, 0,  0, 5, 0, 0, 0, 9, 0, 0, 0,    7};
  const TcpOptions o = parse(three);
  ASSERT_EQ(o.sack_count, 3);
  EXPECT_EQ(o.sack[0], (SackBlock{Seq32(1), Seq32(2)}));
  EXPECT_EQ(o.sack[1], (SackBlock{Seq32(0xffffffff), Seq32(5)}));
  EXPECT_EQ(o.sack[2], (SackBlock{Seq32(9), Seq32(7)})) << "as received: the scoreboard judges";
  for (size_t n = 0; n < three.size(); ++n)
    EXPECT_EQ(parse(Bytes(three.begin(), three.begin() + static_cast<long>(n))).sack_count, 0);
  EXPECT_EQ(parse({5, 9, 0, 0, 0, 1, 0, 0, 0}).sack_count, 0) << "not a multiple of 8";
  EXPECT_EQ(parse({5, 2}).sack_count, 0) << "empty";
  Bytes five = {5, 42};
  five.resize(42);
  EXPECT_EQ(parse(five).sack_count, 4) << "no more than fit the header";
  EXPECT_EQ(parse(three, true).sack_count, 0) << "none in a SYN";
}

TEST(TcpOptions, EmittedSynsParseBack) {
  for (int bits = 0; bits < 8; ++bits) {
    SynOptions s;
    s.mss = 8960;
    if ((bits & 1) != 0) s.window_scale = 9;
    s.sack_permitted = (bits & 2) != 0;
    s.timestamps = (bits & 4) != 0;
    s.ts_val = 0x11223344;
    s.ts_ecr = 0x55667788;
    uint8_t out[40];
    const uint8_t n = emit_syn_options(out, s);
    EXPECT_EQ(n % 4, 0);
    const TcpOptions o = parse(Bytes(out, out + n), true);
    EXPECT_EQ(o.mss, 8960);
    EXPECT_EQ(o.has_window_scale, s.window_scale.has_value());
    EXPECT_EQ(o.window_scale, s.window_scale.value_or(0));
    EXPECT_EQ(o.sack_permitted, s.sack_permitted);
    EXPECT_EQ(o.has_timestamps, s.timestamps);
    EXPECT_EQ(o.ts_ecr, s.timestamps ? s.ts_ecr : 0);
  }
  uint8_t out[40];
  const uint8_t n = emit_syn_options(out, {.mss = 1460,
                                           .window_scale = uint8_t{7},
                                           .sack_permitted = true,
                                           .timestamps = true,
                                           .ts_val = 9});
  EXPECT_EQ(Bytes(out, out + n), kLinuxSyn) << "byte for byte as Linux";
}

TEST(TcpOptions, SackFitsBesideTimestamps) {
  const SackBlock blocks[5] = {{Seq32(1), Seq32(2)},
                               {Seq32(3), Seq32(4)},
                               {Seq32(5), Seq32(6)},
                               {Seq32(7), Seq32(8)},
                               {Seq32(9), Seq32(10)}};
  uint8_t out[40];
  TcpOptionWriter w(out);
  w.timestamps(1, 2);
  EXPECT_EQ(w.sack(blocks), 3U);
  EXPECT_EQ(w.size(), 40);
  EXPECT_EQ(w.sack(blocks), 0U) << "full";
  const TcpOptions o = parse(Bytes(out, out + 40));
  EXPECT_TRUE(o.has_timestamps);
  EXPECT_EQ(o.sack_count, 3);
  EXPECT_EQ(o.sack[2].right, Seq32(6));
  TcpOptionWriter alone(out);
  EXPECT_EQ(alone.sack(blocks), 4U);
  EXPECT_EQ(alone.size(), 36);
}

}  // namespace
}  // namespace vireo::wire
