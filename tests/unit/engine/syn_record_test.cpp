// The record of a half-open connection, its table, and cookies.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "stack/engine/syn_table.h"
#include "stack/tcp/syn_cookie.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

using tcp::Config;
using tcp::Plan;
using tcp::Segment;
using tcp::SynRecord;
using tcp::SynVerdict;

constexpr Instant kNow = Instant::from_ns(7'000'000'000'000);
const tcp::IsnSecret kKey{0x0123456789abcdef, 0xfedcba9876543210};

SynTuple tuple(uint32_t i) {
  return {ip("10.0.0.1"), IpAddr::v4(be32(0x0b000000 + i / 60000)), 80,
          static_cast<uint16_t>(1024 + i % 60000)};
}

std::vector<uint8_t> options_of(const Plan& p) { return {p.options, p.options + p.options_length}; }

/// A record as a SYN with everything makes it.
SynRecord record(const Config& c, const std::vector<uint8_t>& options, bool v6 = false) {
  SynRecord r;
  r.local = ip(v6 ? "fd00::1" : "10.0.0.1");
  r.remote = ip(v6 ? "fd00::77" : "11.0.0.7");
  r.local_port = 80;
  r.remote_port = 4000;
  Segment syn;
  syn.seq = Seq32(5000);
  syn.flags = kSyn;
  syn.options = options;
  tcp::adopt_syn(r, c, syn);
  r.iss = Seq32(900);
  return r;
}
const std::vector<uint8_t> kFull{2, 4, 0x05, 0xb4, 1, 1, 4, 2, 1, 1, 8, 10,
                                 0, 0, 0,    77,   0, 0, 0, 0, 1, 3, 3, 9};

TEST(SynRecord, SaysASynAckOfWhatWasNegotiated) {
  Config c;
  c.mss = 1400;
  c.ts_offset = 1000;
  Plan p;
  SynRecord r = record(c, kFull);
  tcp::plan_syn_ack(r, c, kNow, p);
  EXPECT_EQ(p.seq, Seq32(900));
  EXPECT_EQ(p.ack, Seq32(5001));
  EXPECT_EQ(p.flags, kSyn | kAck);
  EXPECT_EQ(p.window, 65535) << "RFC 7323 2.2: never scaled";
  const auto bytes = options_of(p);
  const auto o = wire::parse_tcp_options(bytes, true);
  EXPECT_EQ(o.mss, 1400);
  EXPECT_TRUE(o.sack_permitted && o.has_timestamps && o.has_window_scale);
  EXPECT_EQ(o.ts_ecr, 77u);
  EXPECT_EQ(o.ts_val, 7'000'000u + 1000);

  r = record(c, {});
  tcp::plan_syn_ack(r, c, kNow, p);
  const auto plain = options_of(p);
  const auto n = wire::parse_tcp_options(plain, true);
  EXPECT_TRUE(n.has_mss && !n.sack_permitted && !n.has_timestamps && !n.has_window_scale);
  EXPECT_EQ(r.mss, 536) << "RFC 9293 3.7.1";
}

TEST(SynRecord, VerdictsOfRfc9293And5961) {
  const Config c;
  const auto verdict = [&](SegFlags flags, uint32_t seq, uint32_t ack, const char* data = "") {
    SynRecord r = record(c, {});
    std::vector<std::byte> memory(4096);
    PacketPool pool(memory, 2048);
    Segment s;
    s.flags = flags;
    s.seq = Seq32(seq);
    s.ack = Seq32(ack);
    if (*data != 0) {
      PacketRef b(pool.take());
      b->length = static_cast<uint16_t>(std::strlen(data));
      s.payload.push_back(std::move(b));
    }
    return tcp::syn_record_input(r, c, s);
  };
  EXPECT_EQ(verdict(kSyn, 5000, 0), SynVerdict::kRepeat);
  EXPECT_EQ(verdict(kAck, 5001, 901), SynVerdict::kOpen);
  EXPECT_EQ(verdict(kAck, 5001, 901, "data"), SynVerdict::kOpen);
  EXPECT_EQ(verdict(kAck | kFin, 5001, 901), SynVerdict::kOpen);
  EXPECT_EQ(verdict(kAck, 5003, 901, "later"), SynVerdict::kOpen) << "the first data was lost";
  EXPECT_EQ(verdict(kSyn | kAck, 5000, 901), SynVerdict::kOpen) << "opens crossed";
  EXPECT_EQ(verdict(kAck, 5001, 902), SynVerdict::kReset);
  EXPECT_EQ(verdict(kAck, 5001, 900), SynVerdict::kReset);
  EXPECT_EQ(verdict(kAck, 5000, 901), SynVerdict::kChallenge) << "below the window";
  EXPECT_EQ(verdict(kAck, 5001 + 65536, 901), SynVerdict::kChallenge) << "beyond it";
  EXPECT_EQ(verdict(kSyn, 9000, 0), SynVerdict::kChallenge) << "RFC 5961 4";
  EXPECT_EQ(verdict(kSyn, 4000, 0), SynVerdict::kChallenge);
  EXPECT_EQ(verdict(kRst, 5001, 0), SynVerdict::kGone) << "RFC 5961 3.2: exactly";
  EXPECT_EQ(verdict(kRst, 5002, 0), SynVerdict::kChallenge);
  EXPECT_EQ(verdict(kRst, 5001 + 65535, 0), SynVerdict::kDrop);
  EXPECT_EQ(verdict(kRst, 4999, 0), SynVerdict::kDrop);
  EXPECT_EQ(verdict(SegFlags::kNone, 5001, 0), SynVerdict::kDrop);
}

TEST(SynRecord, TimestampsGuardIt) {
  const Config c;
  SynRecord r = record(c, kFull);
  const std::vector<uint8_t> old{1, 1, 8, 10, 0, 0, 0, 76, 0, 0, 0, 0};
  const std::vector<uint8_t> fresh{1, 1, 8, 10, 0, 0, 0, 90, 0, 0, 0, 0};
  Segment s;
  s.flags = kAck;
  s.seq = Seq32(5001);
  s.ack = Seq32(901);
  s.options = old;
  EXPECT_EQ(tcp::syn_record_input(r, c, s), SynVerdict::kChallenge) << "RFC 7323 5.3";
  EXPECT_EQ(r.ts_recent, 77u);
  s.options = fresh;
  EXPECT_EQ(tcp::syn_record_input(r, c, s), SynVerdict::kOpen);
  EXPECT_EQ(r.ts_recent, 90u);
  s.options = {};
  EXPECT_EQ(tcp::syn_record_input(r, c, s), SynVerdict::kOpen)
      << "without the option: taken, as by Linux (gVisor #11536)";
}

// ---- the table

TEST(SynTable, FindsAndForgets) {
  SynTable t;
  for (uint32_t i = 0; i < 10'000; ++i) {
    SynRecord* r = t.insert(tuple(i));
    ASSERT_NE(r, nullptr);
    r->iss = Seq32(i);
    t.schedule(*r, kNow);
  }
  EXPECT_EQ(t.size(), 10'000u);
  for (uint32_t i = 0; i < 10'000; ++i) {
    SynRecord* r = t.find(tuple(i));
    ASSERT_NE(r, nullptr);
    ASSERT_EQ(r->iss, Seq32(i));
  }
  EXPECT_EQ(t.find(tuple(10'000)), nullptr);
  EXPECT_LT(t.bytes(), 10'000 * 64 * 5 / 4u);
  for (uint32_t i = 0; i < 10'000; i += 2) t.erase(*t.find(tuple(i)));
  for (uint32_t i = 0; i < 10'000; ++i) ASSERT_EQ(t.find(tuple(i)) != nullptr, i % 2 == 1);
  for (uint32_t i = 1; i < 10'000; i += 2) t.erase(*t.find(tuple(i)));
  EXPECT_EQ(t.size(), 0u);
  EXPECT_LE(t.bytes(), 256 * 64u) << "memory comes back";
  EXPECT_TRUE(t.next_deadline().is_never());
}

TEST(SynTable, IsDueAfterOneTwoFourSeconds) {
  SynTable t;
  SynRecord* a = t.insert(tuple(1));
  SynRecord* b = t.insert(tuple(2));
  t.schedule(*a, kNow);
  t.schedule(*b, kNow + Duration::ms(300));
  const auto near = [](Instant x, Instant y) { return x <= y && y - x <= Duration::us(2); };
  EXPECT_TRUE(near(t.next_deadline(), kNow + Duration::s(1)));
  EXPECT_EQ(t.pop_due(kNow + Duration::ms(999)), nullptr);
  EXPECT_EQ(t.pop_due(kNow + Duration::s(1)), a);
  EXPECT_EQ(t.pop_due(kNow + Duration::s(1)), nullptr);
  a->timeouts = 1;
  t.schedule(*a, kNow + Duration::s(1));
  EXPECT_EQ(t.pop_due(kNow + Duration::ms(1300)), b);
  t.erase(*b);
  EXPECT_LE(t.next_deadline(), kNow + Duration::s(3));
  EXPECT_EQ(t.pop_due(kNow + Duration::s(2)), nullptr);
  EXPECT_TRUE(near(t.next_deadline(), kNow + Duration::s(3)));
  EXPECT_EQ(t.pop_due(kNow + Duration::s(3)), a);
  a->timeouts = 20;
  t.schedule(*a, kNow + Duration::s(3));
  EXPECT_EQ(t.pop_due(kNow + Duration::s(122)), nullptr);
  EXPECT_TRUE(near(t.next_deadline(), kNow + Duration::s(123)));
}

TEST(SynTable, RandomLivesAgreeWithAModel) {
  SynTable t;
  std::mt19937 random(7);
  std::vector<uint32_t> live;
  Instant now = kNow;
  for (int step = 0; step < 200'000; ++step) {
    now = now + Duration::us(static_cast<int64_t>(random() % 100));
    const auto i = static_cast<uint32_t>(random() % 3000);
    const auto at = std::find(live.begin(), live.end(), i);
    SynRecord* r = t.find(tuple(i));
    ASSERT_EQ(r != nullptr, at != live.end());
    if (r == nullptr) {
      if (random() % 2 != 0) continue;
      t.schedule(*t.insert(tuple(i)), now);
      live.push_back(i);
    } else if (random() % 3 == 0) {
      t.schedule(*r, now);
    } else {
      t.erase(*r);
      live.erase(at);
    }
    ASSERT_EQ(t.size(), live.size());
  }
  size_t seen = 0;
  t.for_each([&](SynRecord&) { ++seen; });
  EXPECT_EQ(seen, live.size()) << "each stands in one queue";
}

// TCP.md 3.10 row 23: a stranger who chooses a million tuples makes no long chain.
TEST(SynTable, AMillionChosenTuplesMakeNoLongChain) {
  SynTable t;
  for (uint32_t i = 0; i < 1'000'000; ++i) t.schedule(*t.insert(tuple(i)), kNow);
  unsigned longest = 0;
  for (uint32_t i = 0; i < 1'000'000; ++i) longest = std::max(longest, t.groups_searched(tuple(i)));
  EXPECT_LT(longest, 8u);
}

TEST(Demux, AMillionChosenTuplesMakeNoLongChain) {  // TCP.md 3.10 row 23
  struct Keys {
    static DemuxKey key(uint32_t i) {
      const SynTuple t = tuple(i);
      return DemuxKey::exact(IpProto::kTcp, t.local, t.local_port, t.remote, t.remote_port);
    }
    static DemuxKey key_of(uint64_t ref) { return key(static_cast<uint32_t>(ref - 1)); }
  };
  DemuxTable<Keys> d;
  constexpr auto key = &Keys::key;
  for (uint32_t i = 0; i < 1'000'000; ++i) ASSERT_TRUE(d.insert(key(i), i + 1));
  unsigned longest = 0;
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    ASSERT_EQ(d.find(key(i)), i + 1);
    longest = std::max(longest, d.groups_searched(key(i)));
  }
  EXPECT_LT(longest, 8u);
}

// ---- cookies

/// The third segment in answer to a SYN-ACK.
Segment answer(const Plan& syn_ack, std::vector<uint8_t>& options) {
  const auto bytes = options_of(syn_ack);
  const auto o = wire::parse_tcp_options(bytes, true);
  Segment s;
  s.flags = kAck;
  s.seq = syn_ack.ack;
  s.ack = syn_ack.seq + 1;
  options.clear();
  if (o.has_timestamps) {
    std::array<uint8_t, 40> out;
    wire::TcpOptionWriter w(out);
    w.timestamps(78, o.ts_val);
    options.assign(out.begin(), out.begin() + w.size());
  }
  s.options = options;
  return s;
}

SynRecord blank(const SynRecord& like) {
  SynRecord r;
  r.local = like.local;
  r.remote = like.remote;
  r.local_port = like.local_port;
  r.remote_port = like.remote_port;
  return r;
}

TEST(SynCookie, BringsBackWhatTheSynSaid) {
  for (const bool v6 : {false, true})
    for (const bool sack : {false, true})
      for (const bool ts : {false, true})
        for (int scale = -1; scale <= 14; ++scale) {
          Config c;
          c.ts_offset = 0xdeadbeef;
          std::vector<uint8_t> o{2, 4, 0x05, 0xb4};
          if (sack) o.insert(o.end(), {1, 1, 4, 2});
          if (ts) o.insert(o.end(), {1, 1, 8, 10, 0, 0, 0, 77, 0, 0, 0, 0});
          if (scale >= 0) o.insert(o.end(), {1, 3, 3, static_cast<uint8_t>(scale)});
          SynRecord r = record(c, o, v6);
          tcp::make_cookie(r, kKey, kNow);
          Plan p;
          tcp::plan_cookie_syn_ack(r, c, kNow, p);
          std::vector<uint8_t> bytes;
          const Segment s = answer(p, bytes);
          SynRecord back = blank(r);
          ASSERT_TRUE(tcp::open_cookie(back, kKey, c, s, kNow + Duration::ms(30)));
          EXPECT_EQ(back.irs, r.irs);
          EXPECT_EQ(back.iss, r.iss);
          EXPECT_EQ(back.mss, v6 ? 1440 : 1460);
          EXPECT_EQ(back.ts_on, ts);
          EXPECT_EQ(back.sack_on, ts && sack) << "without timestamps the rest is lost, as on Linux";
          EXPECT_EQ(back.wscale_on, ts && scale >= 0);
          EXPECT_EQ(back.wscale, ts && scale >= 0 ? scale : 0);
          EXPECT_EQ(back.ts_recent, ts ? 78u : 0u);
        }
}

TEST(SynCookie, RoundsTheSegmentSizeDown) {
  const Config c;
  const std::pair<int, int> cases[] = {{100, 536},   {536, 536},   {1299, 536}, {1300, 1300},
                                       {1440, 1440}, {1460, 1460}, {9000, 1460}};
  for (const auto& [said, kept] : cases) {
    SynRecord r =
        record(c, {2, 4, static_cast<uint8_t>(said >> 8), static_cast<uint8_t>(said & 255)});
    tcp::make_cookie(r, kKey, kNow);
    Plan p;
    tcp::plan_cookie_syn_ack(r, c, kNow, p);
    std::vector<uint8_t> bytes;
    SynRecord back = blank(r);
    ASSERT_TRUE(tcp::open_cookie(back, kKey, c, answer(p, bytes), kNow));
    EXPECT_EQ(back.mss, kept);
  }
}

TEST(SynCookie, IsRefusedWhenOldOrChanged) {
  const Config c;
  SynRecord r = record(c, kFull);
  const Instant start = Instant::from_ns(tcp::kCookieEpoch.ns() * 100);
  tcp::make_cookie(r, kKey, start);
  Plan p;
  tcp::plan_cookie_syn_ack(r, c, start, p);
  std::vector<uint8_t> bytes;
  const Segment good = answer(p, bytes);
  const auto opens = [&](Instant at, auto&& change) {
    SynRecord back = blank(r);
    Segment s;
    s.flags = good.flags, s.seq = good.seq, s.ack = good.ack, s.options = good.options;
    change(back, s);
    return tcp::open_cookie(back, kKey, c, s, at);
  };
  const auto same = [](SynRecord&, Segment&) {};
  EXPECT_TRUE(opens(start, same));
  EXPECT_TRUE(opens(start + Duration::s(119), same)) << "its own epoch and the next";
  EXPECT_FALSE(opens(start + Duration::s(120), same));
  EXPECT_FALSE(opens(start + Duration::s(7200), same));
  EXPECT_FALSE(opens(start, [](SynRecord&, Segment& s) { s.ack = s.ack + 4; }));
  EXPECT_FALSE(opens(start, [](SynRecord&, Segment& s) { s.seq = s.seq + 1; }));
  EXPECT_FALSE(opens(start, [](SynRecord& b, Segment&) { b.remote_port ^= 1; }));
  EXPECT_FALSE(opens(start, [](SynRecord& b, Segment&) { b.remote = ip("11.0.0.8"); }));
  EXPECT_FALSE(opens(start, [](SynRecord& b, Segment&) { b.local_port ^= 1; }));
  EXPECT_FALSE(opens(start, [](SynRecord&, Segment& s) { s.options = {}; }))
      << "the options that the cookie was made for";
  // The echo is checked too: a forger cannot choose the options freely for long.
  std::vector<uint8_t> late(bytes);
  late[8] ^= 0x40;
  EXPECT_FALSE(opens(start, [&](SynRecord&, Segment& s) { s.options = late; }));
  SynRecord other = blank(r);
  const tcp::IsnSecret key{1, 2};
  EXPECT_FALSE(tcp::open_cookie(other, key, c, good, start));
}

// The cookie names the SYN alone. A connection made from it that is over, its FIN acknowledged or a
// byte or two of it, is not made again by that acknowledgment.
TEST(SynCookie, AnAckOfWhatFollowedTheSynIsNoCookie) {
  const Config c;
  SynRecord r = record(c, kFull);
  for (const uint16_t mss : {uint16_t{536}, uint16_t{1300}, uint16_t{1440}, uint16_t{1460}}) {
    r.mss = mss;
    tcp::make_cookie(r, kKey, kNow);
    Plan p;
    tcp::plan_cookie_syn_ack(r, c, kNow, p);
    std::vector<uint8_t> bytes;
    for (uint32_t more = 0; more < 64; ++more) {
      SynRecord back = blank(r);
      Segment s = answer(p, bytes);
      s.ack = s.ack + more;
      EXPECT_EQ(tcp::open_cookie(back, kKey, c, s, kNow), more == 0) << mss << " + " << more;
    }
  }
}

TEST(SynCookie, AMillionGuessesAreWorthNothing) {
  const Config c;
  SynRecord r = record(c, kFull);
  tcp::make_cookie(r, kKey, kNow);
  std::mt19937 random(11);
  unsigned opened = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    SynRecord back = blank(r);
    Segment s;
    s.flags = kAck;
    s.seq = Seq32(static_cast<uint32_t>(random()));
    s.ack = Seq32(static_cast<uint32_t>(random()));
    opened += tcp::open_cookie(back, kKey, c, s, kNow) ? 1 : 0;
  }
  EXPECT_EQ(opened, 0u);
}

}  // namespace
}  // namespace vireo::test
