#include "stack/wire/parse.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/wire/frames.h"

namespace vireo::wire {
namespace {

using namespace testing_frames;

std::span<const std::byte> bytes(const Bytes& b) {
  return {reinterpret_cast<const std::byte*>(b.data()), b.size()};
}
Spec spec(bool v6, uint8_t proto) {
  Spec s = v6 ? v6_spec() : Spec{};
  s.proto = proto;
  s.payload = {1, 2, 3, 4, 5};
  return s;
}

class ParseBothFamilies : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Families, ParseBothFamilies, testing::Bool(),
                         [](const auto& i) { return i.param ? "v6" : "v4"; });

TEST_P(ParseBothFamilies, Tcp) {
  Spec s = spec(GetParam(), 6);
  s.tos = 0xb9;
  s.ttl = 17;
  s.seq = 0xfffffffe;
  s.ack = 7;
  s.flags = 0x18;
  s.window = 0xabcd;
  s.options = {1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2};
  const Bytes b = make_frame(s);
  const ParsedFrame f = parse_frame(bytes(b));
  ASSERT_TRUE(f) << parse_error_name(f.error);
  EXPECT_EQ(f.proto, IpProto::kTcp);
  EXPECT_EQ(f.is_v6, GetParam());
  EXPECT_EQ(f.l3_at, 14);
  EXPECT_EQ(f.l4_at, 14 + (GetParam() ? 40 : 20));
  EXPECT_EQ(f.payload_at, f.l4_at + 32);
  EXPECT_EQ(f.payload_bytes, 5);
  EXPECT_EQ(f.payload()[4], std::byte{5});
  EXPECT_EQ(f.src(), s.src);
  EXPECT_EQ(f.dst(), s.dst);
  EXPECT_EQ(f.src_port, 1000);
  EXPECT_EQ(f.dst_port, 2000);
  EXPECT_EQ(f.ttl, 17);
  EXPECT_EQ(f.tos, 0xb9);
  EXPECT_EQ(f.ecn(), Ecn::kEct1);
  EXPECT_EQ(f.tcp().seq(), Seq32(0xfffffffe));
  EXPECT_EQ(f.tcp().ack(), Seq32(7));
  EXPECT_EQ(f.tcp().flags(), TcpFlags::kAck | TcpFlags::kPsh);
  EXPECT_EQ(f.tcp().header_bytes(), 32U);
  EXPECT_EQ(f.tcp().options().size(), 12U);
  EXPECT_EQ(f.flow().local, (Endpoint{s.dst, 2000, 0}));
  EXPECT_EQ(f.flow().remote, (Endpoint{s.src, 1000, 0}));
  EXPECT_FALSE(f.is_to_group_mac());
  EXPECT_TRUE(ipv4_header_ok(f));
  EXPECT_TRUE(l4_checksum_ok(f));
}

TEST_P(ParseBothFamilies, EveryBitOfTheTransportIsCovered) {
  for (const uint8_t proto : {uint8_t{6}, uint8_t{17}}) {
    const Bytes good = make_frame(spec(GetParam(), proto));
    const ParsedFrame g = parse_frame(bytes(good));
    ASSERT_TRUE(g && l4_checksum_ok(g));
    for (size_t bit = size_t{g.l4_at} * 8; bit < good.size() * 8; ++bit) {
      Bytes b = good;
      b[bit / 8] = static_cast<uint8_t>(b[bit / 8] ^ (1U << (bit % 8)));
      const ParsedFrame f = parse_frame(bytes(b));
      // Flips that shorten UDP's own length change what is covered, but never to a valid sum here.
      EXPECT_FALSE(f && l4_checksum_ok(f)) << int{proto} << " bit " << bit;
    }
  }
}

TEST(Parse, EveryBitOfTheIpv4HeaderIsCovered) {
  const Bytes good = make_frame(spec(false, 6));
  for (size_t bit = 14 * 8; bit < 34 * 8; ++bit) {
    Bytes b = good;
    b[bit / 8] = static_cast<uint8_t>(b[bit / 8] ^ (1U << (bit % 8)));
    const ParsedFrame f = parse_frame(bytes(b));
    EXPECT_FALSE(f && ipv4_header_ok(f)) << bit;
  }
}

TEST_P(ParseBothFamilies, PaddingIsCut) {
  Spec s = spec(GetParam(), 6);
  s.padding = 40;
  s.payload.clear();
  const Bytes b = make_frame(s);
  const ParsedFrame f = parse_frame(bytes(b));
  ASSERT_TRUE(f);
  EXPECT_EQ(f.payload_bytes, 0);
  EXPECT_EQ(f.l4_bytes, 20);
  EXPECT_TRUE(l4_checksum_ok(f));
}

TEST_P(ParseBothFamilies, UpToTwoTags) {
  for (size_t tags = 0; tags <= 3; ++tags) {
    Spec s = spec(GetParam(), 17);
    s.tags = {0x6064, 0x0007, 0x0001};
    s.tags.resize(tags);
    const Bytes b = make_frame(s);
    const ParsedFrame f = parse_frame(bytes(b));
    if (tags == 3) {
      EXPECT_EQ(f.error, ParseError::kTooManyTags);
      continue;
    }
    ASSERT_TRUE(f) << tags;
    EXPECT_EQ(f.tags, tags);
    EXPECT_EQ(f.l3_at, 14 + 4 * tags);
    if (tags > 0) {
      EXPECT_EQ(f.vlan(), VlanId(100));
      EXPECT_EQ(f.vlan_tci >> 13, 3);
    } else {
      EXPECT_EQ(f.vlan(), VlanId(0));
    }
    if (tags > 1) {
      EXPECT_EQ(f.inner_tci, 7);
    }
    EXPECT_TRUE(l4_checksum_ok(f));
  }
}

// Every truncation of every kind of frame is refused and read within bounds (the copy has its exact
// size, for ASan).
TEST_P(ParseBothFamilies, EveryTruncationIsRefused) {
  for (const uint8_t proto : {uint8_t{6}, uint8_t{17}, uint8_t(GetParam() ? 58 : 1)}) {
    Spec s = spec(GetParam(), proto);
    s.tags = {5};
    s.icmp = {3, 3, 0, 0, 0, 0, 0, 0};
    const Bytes whole = make_frame(s);
    ASSERT_TRUE(parse_frame(bytes(whole)));
    for (size_t n = 0; n < whole.size(); ++n) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<long>(n));
      const ParsedFrame f = parse_frame(bytes(cut));
      ASSERT_FALSE(f) << n;
      ASSERT_EQ(f.error, ParseError::kTruncated) << n;
    }
  }
}

TEST(Parse, Fragments) {
  for (const int fragment : {0x2000, 0x0001, 0x1fff, 0x6000}) {
    Spec s = spec(false, 17);
    s.fragment = static_cast<uint16_t>(fragment);
    EXPECT_EQ(parse_frame(bytes(make_frame(s))).error, ParseError::kFragment) << fragment;
  }
  Spec s = spec(false, 17);
  s.fragment = 0;  // DF clear is no fragment
  EXPECT_TRUE(parse_frame(bytes(make_frame(s))));
  Spec s6 = spec(true, 17);
  s6.first_extension = 44;
  s6.extensions = {17, 0, 0, 1, 0, 0, 0, 1};
  EXPECT_EQ(parse_frame(bytes(make_frame(s6))).error, ParseError::kFragment);
}

TEST(Parse, Ipv4OptionsAndLengths) {
  Spec s = spec(false, 6);
  s.ip_options = {7, 3, 4, 0};
  const Bytes b = make_frame(s);
  const ParsedFrame f = parse_frame(bytes(b));
  ASSERT_TRUE(f);
  EXPECT_EQ(f.l4_at, 38);
  EXPECT_TRUE(ipv4_header_ok(f) && l4_checksum_ok(f));

  const auto broken = [](size_t at, uint8_t value) {
    Bytes x = make_frame(spec(false, 6));
    x[at] = value;
    return parse_frame(bytes(x)).error;
  };
  EXPECT_EQ(broken(14, 0x44), ParseError::kBadIpHeader) << "header length below 20";
  EXPECT_EQ(broken(14, 0x65), ParseError::kBadIpHeader) << "version";
  EXPECT_EQ(broken(16, 0xff), ParseError::kTruncated) << "total length beyond the frame";
  EXPECT_EQ(broken(17, 19), ParseError::kBadIpHeader) << "total length below the header";
  EXPECT_EQ(broken(12, 0x09), ParseError::kNotIp);
  EXPECT_EQ(broken(23, 47), ParseError::kUnknownProtocol);
  EXPECT_EQ(broken(23, 58), ParseError::kUnknownProtocol) << "ICMPv6 over IPv4";
  EXPECT_EQ(broken(46, 0x40), ParseError::kBadL4Header) << "data offset below 5";
  EXPECT_EQ(broken(46, 0xf0), ParseError::kBadL4Header) << "data offset beyond the packet";
}

TEST(Parse, Ipv6Extensions) {
  Spec s = spec(true, 6);
  s.first_extension = 0;  // hop-by-hop, then destination options of 16 bytes
  s.extensions = {60, 0, 1, 4, 0, 0, 0, 0, 6, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  {
    const Bytes b = make_frame(s);
    const ParsedFrame f = parse_frame(bytes(b));
    ASSERT_TRUE(f) << parse_error_name(f.error);
    EXPECT_EQ(f.l4_at, 54 + 24);
    EXPECT_EQ(f.payload_bytes, 5);
    EXPECT_TRUE(l4_checksum_ok(f));
  }
  const auto error = [&](uint8_t first, Bytes x) {
    s.first_extension = first;
    s.extensions = std::move(x);
    return parse_frame(bytes(make_frame(s))).error;
  };
  EXPECT_EQ(error(43, {6, 0, 0, 0, 0, 0, 0, 0}), ParseError::kNone)
      << "a source route that is used up";
  EXPECT_EQ(error(43, {6, 0, 0, 1, 0, 0, 0, 0}), ParseError::kExtension) << "and one that is not";
  EXPECT_EQ(error(60, {0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0}), ParseError::kExtension)
      << "hop-by-hop comes first";
  EXPECT_EQ(error(60, {6, 200, 1, 4, 0, 0, 0, 0}), ParseError::kTruncated)
      << "longer than the packet";
  EXPECT_EQ(error(50, {6, 0, 0, 0, 0, 0, 0, 0}), ParseError::kUnknownProtocol) << "ESP";
  Bytes many;
  for (int i = 0; i < 20; ++i) put(many, {i == 19 ? 6 : 60, 0, 1, 4, 0, 0, 0, 0});
  EXPECT_EQ(error(60, many), ParseError::kExtension) << "a chain without end";
}

TEST_P(ParseBothFamilies, UdpLengths) {
  const size_t at = 14U + (GetParam() ? 40 : 20) + 4;
  const auto with_length = [&](uint16_t length) {
    Bytes b = make_frame(spec(GetParam(), 17));
    set16(b, at, length);
    return b;
  };
  Bytes b = with_length(10);
  const ParsedFrame f = parse_frame(bytes(b));
  ASSERT_TRUE(f) << "shorter than the packet: the rest is cut, as Linux does";
  EXPECT_EQ(f.payload_bytes, 2);
  EXPECT_EQ(f.l4_bytes, 10);
  EXPECT_EQ(parse_frame(bytes(with_length(7))).error, ParseError::kBadL4Header);
  EXPECT_EQ(parse_frame(bytes(with_length(0))).error, ParseError::kBadL4Header);
  EXPECT_EQ(parse_frame(bytes(with_length(14))).error, ParseError::kBadL4Header);
}

TEST_P(ParseBothFamilies, UdpChecksumZero) {
  Spec s = spec(GetParam(), 17);
  s.l4_checksum = 0;
  const Bytes b = make_frame(s);
  EXPECT_EQ(l4_checksum_ok(parse_frame(bytes(b))), !GetParam())
      << "none over IPv4, an error over IPv6";
  // A datagram whose sum is zero is sent as all ones, and is good.
  for (uint32_t x = 0; x < 65536; ++x) {
    s.l4_checksum.reset();
    s.payload = {static_cast<uint8_t>(x >> 8), static_cast<uint8_t>(x)};
    const Bytes l4 = make_l4(s);
    if (l4[6] != 0xff || l4[7] != 0xff) continue;
    const Bytes z = make_frame(s);
    EXPECT_TRUE(l4_checksum_ok(parse_frame(bytes(z))));
    return;
  }
  FAIL() << "no such datagram found";
}

TEST_P(ParseBothFamilies, GoesOnInFurtherBuffers) {
  for (const uint8_t proto : {uint8_t{6}, uint8_t{17}}) {
    Spec s = spec(GetParam(), proto);
    s.payload.assign(3001, 0x5c);
    const Bytes whole = make_frame(s);
    const size_t header = parse_frame(bytes(whole)).payload_at;
    for (size_t cut : {header, header + 1, header + 1000, whole.size()}) {
      const Bytes first(whole.begin(), whole.begin() + static_cast<long>(cut));
      const Bytes rest(whole.begin() + static_cast<long>(cut), whole.end());
      EXPECT_EQ(bool(parse_frame(bytes(first))), rest.empty()) << "alone it is truncated";
      const ParsedFrame f = parse_frame(bytes(first), rest.size());
      ASSERT_TRUE(f) << parse_error_name(f.error);
      EXPECT_EQ(f.payload_bytes, 3001);
      EXPECT_EQ(f.payload().size(), cut - header) << "ends with the buffer";
      const auto sum =
          checksum::combine(pseudo_header_sum(f) + checksum::sum(f.l4()),
                            checksum::sum(rest.data(), rest.size()), f.l4().size() % 2 == 1);
      EXPECT_TRUE(checksum::is_good(sum));
    }
    const Bytes first(whole.begin(), whole.begin() + static_cast<long>(header - 1));
    EXPECT_EQ(parse_frame(bytes(first), 9000).error, ParseError::kTruncated)
        << "headers in one buffer";
  }
}

// Found by the fuzzer: an extension header that went on in the next buffer put the ICMP header
// outside the first.
TEST(Parse, ExtensionsEndInTheFirstBuffer) {
  for (const uint8_t proto : {uint8_t{6}, uint8_t{17}, uint8_t{58}}) {
    Spec s = spec(true, proto);
    s.icmp = {1, 4, 0, 0, 0, 0, 0, 0};
    s.first_extension = 60;
    s.extensions = {proto, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    const Bytes whole = make_frame(s);
    ASSERT_TRUE(parse_frame(bytes(whole)));
    for (size_t n = 54; n < 54 + 16 + 8; ++n) {
      const Bytes first(whole.begin(), whole.begin() + static_cast<long>(n));
      EXPECT_EQ(parse_frame(bytes(first), whole.size() - n).error,
                proto == 17 && n >= 78 ? ParseError::kNone : ParseError::kTruncated)
          << n;
    }
  }
}

TEST(Parse, IcmpChecksums) {
  for (bool v6 : {false, true}) {
    Spec s = spec(v6, v6 ? 58 : 1);
    s.icmp = {3, 1, 0, 0, 0, 0, 0, 0};
    Bytes b = make_frame(s);
    const ParsedFrame f = parse_frame(bytes(b));
    ASSERT_TRUE(f);
    EXPECT_EQ(f.payload_bytes, 5);
    EXPECT_TRUE(l4_checksum_ok(f));
    b.back() ^= 1;
    EXPECT_FALSE(l4_checksum_ok(parse_frame(bytes(b))));
  }
}

TEST(Parse, RandomBytesNeverGiveOffsetsOutside) {
  std::mt19937 rng(9);
  for (int i = 0; i < 200000; ++i) {
    Bytes b = make_frame(spec(i % 2 == 0, i % 3 == 0 ? 17 : 6));
    for (unsigned k = 0; k < 1 + rng() % 4; ++k) b[rng() % b.size()] = static_cast<uint8_t>(rng());
    b.resize(rng() % (b.size() + 1));
    const ParsedFrame f = parse_frame(bytes(b));
    if (!f) continue;
    ASSERT_LE(f.l4_at + f.l4_bytes, b.size());
    ASSERT_LE(f.payload_at + f.payload_bytes, b.size());
    ASSERT_GE(f.payload_at, f.l4_at);
  }
}

}  // namespace
}  // namespace vireo::wire
