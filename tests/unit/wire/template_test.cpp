#include "stack/wire/template.h"

#include <gtest/gtest.h>

#include <random>

#include "stack/wire/parse.h"
#include "stack/wire/tcp_options.h"
#include "tests/unit/wire/frames.h"

namespace vireo::wire {
namespace {

using namespace testing_frames;

HeaderTemplate build(const Spec& s) {
  HeaderTemplate::Params p;
  std::copy(s.src_mac.begin(), s.src_mac.end(), p.src_mac.begin());
  std::copy(s.dst_mac.begin(), s.dst_mac.end(), p.dst_mac.begin());
  if (!s.tags.empty()) {
    p.vlan = VlanId(s.tags[0] & 0xfff);
    p.vlan_priority = static_cast<uint8_t>(s.tags[0] >> 13);
  }
  p.proto = static_cast<IpProto>(s.proto);
  p.src = s.src;
  p.dst = s.dst;
  p.src_port = s.src_port;
  p.dst_port = s.dst_port;
  p.ttl = s.ttl;
  p.tos = s.tos;
  p.dont_fragment = s.fragment != 0;
  p.flow_label = s.flow_label;
  return HeaderTemplate::build(p);
}

/// What the template emits, followed by the payload; checks that no more than its room was written.
Bytes emit(const Spec& s, L4Sum mode = L4Sum::kFull) {
  const HeaderTemplate t = build(s);
  std::array<std::byte, HeaderTemplate::kMaxBytes + 8> out;
  out.fill(std::byte{0x5a});
  const auto n = static_cast<uint32_t>(s.payload.size());
  const auto sum = checksum::sum(s.payload.data(), n);
  const size_t size =
      s.proto == 6
          ? t.emit_tcp(out.data(),
                       {.seq = s.seq,
                        .ack = s.ack,
                        .flags = s.flags,
                        .window = s.window,
                        .urgent = s.urgent,
                        .options = s.options,
                        .payload_bytes = n,
                        .payload_sum = sum,
                        .ip_id = s.id,
                        .ecn = static_cast<Ecn>(s.tos & 3)},
                       mode)
          : t.emit_udp(out.data(), {.payload_bytes = n, .payload_sum = sum, .ip_id = s.id}, mode);
  EXPECT_LE(size, HeaderTemplate::kMaxBytes);
  for (size_t i = HeaderTemplate::kMaxBytes; i < out.size(); ++i)
    EXPECT_EQ(out[i], std::byte{0x5a}) << "written beyond its room, of " << size;
  Bytes b(size);
  std::memcpy(b.data(), out.data(), size);
  return append(b, s.payload);
}

Spec random_spec(std::mt19937& rng) {
  Spec s = rng() % 2 == 0 ? Spec{} : v6_spec();
  if (rng() % 2 == 0) s.tags = {static_cast<uint16_t>((rng() & 0xefff) | 1)};
  s.proto = rng() % 2 == 0 ? 6 : 17;
  s.ttl = static_cast<uint8_t>(rng());
  s.tos = static_cast<uint8_t>(rng());
  s.flow_label = rng() & 0xfffff;
  s.src_port = static_cast<uint16_t>(rng());
  s.dst_port = static_cast<uint16_t>(rng());
  s.seq = static_cast<uint32_t>(rng());
  s.ack = static_cast<uint32_t>(rng());
  s.flags = static_cast<uint8_t>(rng());
  s.window = static_cast<uint16_t>(rng());
  s.urgent = static_cast<uint16_t>(rng());
  s.id = static_cast<uint16_t>(rng());
  s.fragment = rng() % 2 == 0 ? 0x4000 : 0;
  s.options.resize(rng() % 11 * 4);
  s.payload.resize(rng() % 1500);
  for (auto& b : s.options) b = static_cast<uint8_t>(rng());
  for (auto& b : s.payload) b = static_cast<uint8_t>(rng());
  return s;
}

TEST(HeaderTemplate, EqualsAFrameMadeByHand) {
  std::mt19937 rng(10);
  for (int i = 0; i < 20000; ++i) {
    const Spec s = random_spec(rng);
    const Bytes got = emit(s);
    ASSERT_EQ(got, make_frame(s)) << i;
    const ParsedFrame f = parse_frame({reinterpret_cast<const std::byte*>(got.data()), got.size()});
    ASSERT_TRUE(f) << parse_error_name(f.error);
    ASSERT_TRUE(ipv4_header_ok(f) && l4_checksum_ok(f));
  }
}

TEST(HeaderTemplate, UdpSumOfZeroIsAllOnes) {
  Spec s;
  s.proto = 17;
  int found = 0;
  for (uint32_t x = 0; x < 65536; ++x) {
    s.payload = {static_cast<uint8_t>(x >> 8), static_cast<uint8_t>(x)};
    const Bytes b = emit(s);
    ASSERT_FALSE(b[40] == 0 && b[41] == 0) << "zero means none";
    found += b[40] == 0xff && b[41] == 0xff ? 1 : 0;
  }
  EXPECT_GE(found, 1);
}

TEST(HeaderTemplate, ChecksumsLeftToTheDevice) {
  for (const uint8_t proto : {uint8_t{6}, uint8_t{17}}) {
    for (bool v6 : {false, true}) {
      Spec s = v6 ? v6_spec() : Spec{};
      s.proto = proto;
      s.payload = {1, 2, 3};
      const size_t at = 14U + (v6 ? 40 : 20) + (proto == 6 ? 16 : 6);
      // What a device does: sums from the transport header on, field included, and complements.
      Bytes b = emit(s, L4Sum::kPseudo);
      const uint16_t sum = naive_checksum(b, 14U + (v6 ? 40 : 20));
      set16(b, at, sum);
      EXPECT_EQ(b, make_frame(s));
    }
  }
}

TEST(HeaderTemplate, EmptyUntilBuilt) {
  EXPECT_FALSE(HeaderTemplate());
  EXPECT_TRUE(build(Spec{}));
  EXPECT_EQ(build(Spec{}).size(), 54U);
  EXPECT_EQ(build(v6_spec()).size(), 74U);
}

/// What is written at fixed places is what is written anywhere, to the bit, and no byte behind it.
TEST(Template, APlainFrameIsTheSameHeader) {
  std::mt19937 rng(8);
  int plain = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Spec s = random_spec(rng);
    const HeaderTemplate t = build(s);
    const bool is_expected = s.tags.empty() && s.dst.is_v4();
    ASSERT_EQ(t.is_plain_tcp(), is_expected && s.proto == 6);
    ASSERT_EQ(t.is_plain_udp(), is_expected && s.proto == 17);
    if (!is_expected) continue;
    ++plain;
    const auto bytes = static_cast<uint32_t>(rng() % 1448);
    const auto sum = static_cast<checksum::Sum>(i % 8 == 0 ? 0xffff : rng() % 0x10000);
    std::array<std::byte, HeaderTemplate::kMaxBytes> any{}, fixed{};
    if (s.proto == 17) {
      ASSERT_EQ(t.emit_udp(any.data(), {.payload_bytes = bytes, .payload_sum = sum}),
                HeaderTemplate::kPlainUdp);
      t.emit_plain_udp(fixed.data(), bytes, sum);
      ASSERT_EQ(any, fixed);
      continue;
    }
    uint8_t options[40];
    TcpOptionWriter w(options);
    const auto val = static_cast<uint32_t>(rng());
    const auto echo = static_cast<uint32_t>(rng());
    w.timestamps(val, echo);
    ASSERT_EQ(t.emit_tcp(any.data(), {.seq = s.seq,
                                      .ack = s.ack,
                                      .flags = s.flags,
                                      .window = s.window,
                                      .options = {options, w.size()},
                                      .payload_bytes = bytes,
                                      .payload_sum = sum}),
              HeaderTemplate::kPlainTcp);
    t.emit_plain_tcp(fixed.data(), {.seq = s.seq,
                                    .ack = s.ack,
                                    .flags = s.flags,
                                    .window = s.window,
                                    .ts_val = val,
                                    .ts_echo = echo,
                                    .payload_bytes = bytes,
                                    .payload_sum = sum});
    ASSERT_EQ(any, fixed);
  }
  EXPECT_GT(plain, 1'000);
}

}  // namespace
}  // namespace vireo::wire
