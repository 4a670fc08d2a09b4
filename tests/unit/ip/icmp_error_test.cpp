#include "stack/ip/icmp_error.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/unit/wire/frames.h"

namespace vireo::ip {
namespace {

using namespace testing_frames;
using Kind = IcmpErrorKind;

/// An error of `type`/`code` about a packet we sent, quoting `quoted_bytes` of it.
struct ErrorSpec {
  bool v6 = false;
  uint8_t type = 3;
  uint8_t code = 3;
  uint32_t rest = 0;
  uint8_t proto = 6;
  size_t quoted_bytes = 28;
  size_t payload = 100;
};

Spec sent_by_us(const ErrorSpec& e) {
  Spec s = e.v6 ? v6_spec() : Spec{};
  std::swap(s.src, s.dst);
  s.proto = e.proto;
  s.src_port = 4000;
  s.dst_port = 80;
  s.seq = 0xdeadbeef;
  s.payload.resize(e.payload);
  return s;
}

Bytes make_error(const ErrorSpec& e, const Spec& quoted) {
  Bytes q = make_frame(quoted);
  q.erase(q.begin(), q.begin() + 14);
  if (q.size() > e.quoted_bytes) q.resize(e.quoted_bytes);
  Spec s = e.v6 ? v6_spec() : Spec{};
  s.src = *IpAddr::parse(e.v6 ? "2001:db8:ffff::9" : "192.168.9.9");
  s.proto = e.v6 ? 58 : 1;
  put(s.icmp, {e.type, e.code, 0, 0});
  put32(s.icmp, e.rest);
  s.payload = q;
  return make_frame(s);
}

std::optional<IcmpError> parse(const Bytes& b) {
  return parse_icmp_error(
      wire::parse_frame({reinterpret_cast<const std::byte*>(b.data()), b.size()}));
}
std::optional<IcmpError> parse(const ErrorSpec& e) { return parse(make_error(e, sent_by_us(e))); }

TEST(IcmpError, TellsTheFlow) {
  for (bool v6 : {false, true}) {
    for (const uint8_t proto : {uint8_t{6}, uint8_t{17}}) {
      ErrorSpec e;
      e.v6 = v6;
      e.proto = proto;
      e.type = v6 ? 1 : 3;
      e.code = v6 ? 4 : 3;
      e.quoted_bytes = v6 ? 48 : 28;
      const auto r = parse(e);
      ASSERT_TRUE(r);
      const Spec s = sent_by_us(e);
      EXPECT_EQ(r->kind, Kind::kPortUnreachable);
      EXPECT_EQ(r->error, ECONNREFUSED);
      EXPECT_TRUE(r->hard);
      EXPECT_EQ(static_cast<uint8_t>(r->proto), proto);
      EXPECT_EQ(r->local, (Endpoint{s.src, 4000, 0}));
      EXPECT_EQ(r->remote, (Endpoint{s.dst, 80, 0}));
      EXPECT_EQ(r->tcp_seq, proto == 6 ? 0xdeadbeefU : 0U);
      EXPECT_EQ(r->reporter, *IpAddr::parse(v6 ? "2001:db8:ffff::9" : "192.168.9.9"));
      EXPECT_EQ(r->code, e.code);
    }
  }
}

TEST(IcmpError, ErrnosOfLinuxV4) {
  const struct {
    uint8_t type, code;
    int error;
    bool hard;
  } table[] = {
      {3, 0, ENETUNREACH, false},   {3, 1, EHOSTUNREACH, false},  {3, 2, ENOPROTOOPT, true},
      {3, 3, ECONNREFUSED, true},   {3, 4, EMSGSIZE, false},      {3, 5, EOPNOTSUPP, false},
      {3, 6, ENETUNREACH, true},    {3, 7, EHOSTDOWN, true},      {3, 8, ENONET, true},
      {3, 9, ENETUNREACH, true},    {3, 10, EHOSTUNREACH, true},  {3, 11, ENETUNREACH, false},
      {3, 12, EHOSTUNREACH, false}, {3, 13, EHOSTUNREACH, true},  {3, 14, EHOSTUNREACH, true},
      {3, 15, EHOSTUNREACH, true},  {11, 0, EHOSTUNREACH, false}, {12, 0, EPROTO, true}};
  for (const auto& t : table) {
    ErrorSpec e;
    e.type = t.type;
    e.code = t.code;
    const auto r = parse(e);
    ASSERT_TRUE(r) << int{t.type} << "/" << int{t.code};
    EXPECT_EQ(r->error, t.error) << int{t.type} << "/" << int{t.code};
    EXPECT_EQ(r->hard, t.hard) << int{t.type} << "/" << int{t.code};
  }
}

TEST(IcmpError, ErrnosOfLinuxV6) {
  const struct {
    uint8_t type, code;
    int error;
    bool hard;
  } table[] = {{1, 0, ENETUNREACH, false},  {1, 1, EACCES, true},       {1, 2, EHOSTUNREACH, false},
               {1, 3, EHOSTUNREACH, false}, {1, 4, ECONNREFUSED, true}, {1, 5, EACCES, true},
               {1, 6, EACCES, true},        {1, 7, EPROTO, true},       {2, 0, EMSGSIZE, false},
               {3, 0, EHOSTUNREACH, false}, {4, 1, EPROTO, true}};
  for (const auto& t : table) {
    ErrorSpec e;
    e.v6 = true;
    e.type = t.type;
    e.code = t.code;
    e.quoted_bytes = 48;
    const auto r = parse(e);
    ASSERT_TRUE(r) << int{t.type} << "/" << int{t.code};
    EXPECT_EQ(r->error, t.error) << int{t.type} << "/" << int{t.code};
    EXPECT_EQ(r->hard, t.hard) << int{t.type} << "/" << int{t.code};
  }
}

TEST(IcmpError, MtuWithItsFloors) {
  ErrorSpec e;
  e.code = 4;
  const auto v4 = [&](uint32_t rest, size_t payload = 1400) {
    e.rest = rest;
    e.payload = payload;
    const auto r = parse(e);
    EXPECT_EQ(r->kind, Kind::kTooBig);
    return r->mtu;
  };
  EXPECT_EQ(v4(1400), 1400U);
  EXPECT_EQ(v4(0xffff0000U | 1300), 1300U) << "only the low half is the MTU";
  EXPECT_EQ(v4(68), 552U);
  EXPECT_EQ(v4(0), 1006U) << "an old router: the plateau below 1440";
  EXPECT_EQ(v4(0, 9000), 8166U);
  EXPECT_EQ(v4(0, 100), 552U);
  e.v6 = true;
  e.type = 2;
  e.code = 0;
  e.quoted_bytes = 48;
  e.rest = 1400;
  EXPECT_EQ(parse(e)->mtu, 1400U);
  e.rest = 100;
  EXPECT_EQ(parse(e)->mtu, 1280U);
  e.rest = 0xffffffff;
  EXPECT_EQ(parse(e)->mtu, 0xffffffffU);
}

TEST(IcmpError, RefusesWhatIsNoErrorOfOurs) {
  const auto refused = [](auto&& change) {
    ErrorSpec e;
    Spec q = sent_by_us(e);
    change(e, q);
    return !parse(make_error(e, q));
  };
  EXPECT_FALSE(refused([](ErrorSpec&, Spec&) {}));
  EXPECT_TRUE(refused([](ErrorSpec& e, Spec&) { e.type = 8; })) << "echo request";
  EXPECT_TRUE(refused([](ErrorSpec& e, Spec&) { e.type = 5; })) << "redirect";
  EXPECT_TRUE(refused([](ErrorSpec& e, Spec&) { e.type = 4; })) << "source quench";
  EXPECT_TRUE(refused([](ErrorSpec& e, Spec&) { e.code = 16; }));
  EXPECT_TRUE(refused([](ErrorSpec&, Spec& q) { q.src = *IpAddr::parse("10.0.0.77"); }))
      << "not sent by us";
  EXPECT_TRUE(refused([](ErrorSpec&, Spec& q) { q.fragment = 0x0010; }))
      << "a later fragment has no ports";
  EXPECT_FALSE(refused([](ErrorSpec&, Spec& q) { q.fragment = 0x2000; })) << "the first has";
  EXPECT_TRUE(refused([](ErrorSpec&, Spec& q) { q.proto = 47; }));
  for (size_t n = 0; n < 28; ++n)
    EXPECT_TRUE(refused([&](ErrorSpec& e, Spec&) { e.quoted_bytes = n; })) << n << " bytes quoted";
}

TEST(IcmpError, QuotedIpv4Options) {
  ErrorSpec e;
  Spec q = sent_by_us(e);
  q.ip_options = {7, 3, 4, 0};
  e.quoted_bytes = 32;
  const auto r = parse(make_error(e, q));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->local.port, 4000);
  e.quoted_bytes = 31;
  EXPECT_FALSE(parse(make_error(e, q)));
}

TEST(IcmpError, ChecksumIsVerified) {
  ErrorSpec e;
  const Bytes good = make_error(e, sent_by_us(e));
  for (size_t at = 34; at < good.size(); ++at) {
    Bytes b = good;
    b[at] ^= 0x10;
    EXPECT_FALSE(parse(b)) << at;
  }
}

}  // namespace
}  // namespace vireo::ip
