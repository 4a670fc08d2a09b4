#include "core/address.h"

#include <gtest/gtest.h>

#include <cstring>

namespace vireo {
namespace {

IpAddr ip(const char* s) { return *IpAddr::parse(s); }

TEST(IpAddr, ParsesAndPrintsBothFamilies) {
  for (const char* s :
       {"10.0.0.1", "0.0.0.0", "255.255.255.255", "::", "::1", "2001:db8::1", "fe80::1"})
    EXPECT_EQ(ip(s).str(), s);
  for (const char* s : {"", "10.0.0", "10.0.0.256", "::g", "1::2::3", "10.0.0.1 "})
    EXPECT_FALSE(IpAddr::parse(s)) << s;
  EXPECT_FALSE(IpAddr::parse(std::string(100, '1')));
}

TEST(IpAddr, MappedIsV4) {
  EXPECT_TRUE(ip("::ffff:10.0.0.1").is_v4());
  EXPECT_EQ(ip("::ffff:10.0.0.1"), ip("10.0.0.1"));
  EXPECT_EQ(uint32_t{ip("10.0.0.1").as_v4()}, 0x0a000001U);
  EXPECT_FALSE(ip("::").is_v4());
  EXPECT_EQ(ip("::1").family(), AF_INET6);
  EXPECT_EQ(ip("1.2.3.4").family(), AF_INET);
}

TEST(IpAddr, Kinds) {
  EXPECT_TRUE(ip("0.0.0.0").is_unspecified() && ip("::").is_unspecified());
  EXPECT_TRUE(ip("127.1.2.3").is_loopback() && ip("::1").is_loopback());
  EXPECT_FALSE(ip("128.0.0.1").is_loopback());
  EXPECT_FALSE(ip("::2").is_loopback());
  EXPECT_TRUE(ip("224.0.0.1").is_multicast() && ip("239.255.255.255").is_multicast() &&
              ip("ff02::1").is_multicast());
  EXPECT_FALSE(ip("240.0.0.1").is_multicast());
  EXPECT_TRUE(ip("169.254.1.1").is_link_local() && ip("fe80::1").is_link_local() &&
              ip("febf::1").is_link_local());
  EXPECT_FALSE(ip("fec0::1").is_link_local());
  EXPECT_TRUE(ip("255.255.255.255").is_limited_broadcast());
}

TEST(IpAddr, Prefixes) {
  EXPECT_TRUE(ip("10.1.2.3").in_prefix(ip("10.0.0.0"), 8));
  EXPECT_FALSE(ip("11.1.2.3").in_prefix(ip("10.0.0.0"), 8));
  EXPECT_TRUE(ip("10.0.0.127").in_prefix(ip("10.0.0.0"), 25));
  EXPECT_FALSE(ip("10.0.0.128").in_prefix(ip("10.0.0.0"), 25));
  EXPECT_TRUE(ip("1.2.3.4").in_prefix(ip("0.0.0.0"), 0));
  EXPECT_TRUE(ip("1.2.3.4").in_prefix(ip("1.2.3.4"), 32));
  EXPECT_TRUE(ip("2001:db8::5").in_prefix(ip("2001:db8::"), 32));
  EXPECT_FALSE(ip("2001:db9::5").in_prefix(ip("2001:db8::"), 32));
  EXPECT_FALSE(ip("::1").in_prefix(ip("0.0.0.0"), 0)) << "families never mix";
  EXPECT_FALSE(ip("10.0.0.1").in_prefix(ip("::"), 0));
}

TEST(Endpoint, SockaddrBothWays) {
  for (const char* s : {"10.0.0.1", "2001:db8::1", "fe80::1"}) {
    const Endpoint e{ip(s), 8080, ip(s).is_link_local() && !ip(s).is_v4() ? 3U : 0U};
    sockaddr_storage ss;
    const socklen_t n = e.to_sockaddr(ss, e.addr.family());
    const auto back = Endpoint::from_sockaddr(reinterpret_cast<sockaddr*>(&ss), n);
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, e);
    EXPECT_FALSE(Endpoint::from_sockaddr(reinterpret_cast<sockaddr*>(&ss), 8)) << "too short";
  }
  const Endpoint v4{ip("10.0.0.1"), 1, 0};
  sockaddr_storage ss;
  EXPECT_EQ(v4.to_sockaddr(ss, AF_INET6), sizeof(sockaddr_in6));
  EXPECT_EQ(*Endpoint::from_sockaddr(reinterpret_cast<sockaddr*>(&ss), sizeof(sockaddr_in6)), v4)
      << "v4-mapped";
  std::memset(&ss, 0xa5, sizeof ss);
  ASSERT_EQ(v4.to_sockaddr(ss, AF_INET), sizeof(sockaddr_in));
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(1);
  in.sin_addr.s_addr = htonl(0x0a000001);
  EXPECT_EQ(std::memcmp(&ss, &in, sizeof in), 0) << "sin_zero too";
  EXPECT_FALSE(Endpoint::from_sockaddr(nullptr, 16));
  EXPECT_EQ((Endpoint{ip("::1"), 80, 0}).str(), "[::1]:80");
  EXPECT_EQ(v4.str(), "10.0.0.1:1");
}

}  // namespace
}  // namespace vireo
