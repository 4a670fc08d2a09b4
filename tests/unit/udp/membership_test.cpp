#include "stack/udp/membership.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <random>

namespace vireo::udp {
namespace {

IpAddr ip(const char* s) { return *IpAddr::parse(s); }
const IpAddr kGroup = ip("239.1.2.3");
const IpAddr kA = ip("10.0.0.1");
const IpAddr kB = ip("10.0.0.2");
constexpr IfIndex kIf{3};
constexpr IfIndex kOther{4};

int code(const Result<void>& r) { return r ? 0 : r.error().code; }

TEST(Membership, JoinHearLeave) {
  Membership m;
  EXPECT_EQ(m.hears(kGroup, kA, kIf, true), Heard::kYes) << "IP_MULTICAST_ALL";
  EXPECT_EQ(m.hears(kGroup, kA, kIf, false), Heard::kNotMember);
  EXPECT_EQ(code(m.join(kGroup, kIf)), 0);
  EXPECT_EQ(code(m.join(kGroup, kIf)), EADDRINUSE);
  EXPECT_EQ(code(m.join(kA, kIf)), EINVAL);
  EXPECT_EQ(m.hears(kGroup, kA, kIf, false), Heard::kYes);
  EXPECT_EQ(m.hears(kGroup, kA, kOther, false), Heard::kNotMember) << "joined elsewhere";
  EXPECT_EQ(code(m.leave(kGroup, kOther)), EADDRNOTAVAIL);
  EXPECT_EQ(code(m.leave(kGroup, kIf)), 0);
  EXPECT_EQ(m.hears(kGroup, kA, kIf, false), Heard::kNotMember);
}

TEST(Membership, Ipv6LooksOnAnyInterface) {
  Membership m;
  ASSERT_TRUE(m.join(ip("ff15::1"), kIf));
  EXPECT_EQ(m.hears(ip("ff15::1"), ip("fe80::1"), kOther, false), Heard::kYes);
}

TEST(Membership, SourcesIncludedAndExcluded) {
  Membership m;
  ASSERT_TRUE(m.join_source(kGroup, kA, kIf));
  EXPECT_EQ(m.hears(kGroup, kA, kIf, true), Heard::kYes);
  EXPECT_EQ(m.hears(kGroup, kB, kIf, true), Heard::kSourceFiltered);
  EXPECT_EQ(code(m.block(kGroup, kB, kIf)), EINVAL) << "the other mode";
  EXPECT_EQ(code(m.join_source(kGroup, kA, kIf)), EADDRNOTAVAIL);
  ASSERT_TRUE(m.join_source(kGroup, kB, kIf));
  ASSERT_TRUE(m.leave_source(kGroup, kA, kIf));
  EXPECT_EQ(m.hears(kGroup, kA, kIf, true), Heard::kSourceFiltered);
  ASSERT_TRUE(m.leave_source(kGroup, kB, kIf));
  EXPECT_TRUE(m.groups().empty()) << "left with the last source";

  ASSERT_TRUE(m.join(kGroup, kIf));
  ASSERT_TRUE(m.block(kGroup, kA, kIf));
  EXPECT_EQ(m.hears(kGroup, kA, kIf, true), Heard::kSourceFiltered);
  EXPECT_EQ(m.hears(kGroup, kB, kIf, true), Heard::kYes);
  EXPECT_EQ(code(m.unblock(kGroup, kB, kIf)), EADDRNOTAVAIL);
  ASSERT_TRUE(m.unblock(kGroup, kA, kIf));
  EXPECT_EQ(m.hears(kGroup, kA, kIf, true), Heard::kYes);
}

TEST(Membership, WholeFilterAndLimits) {
  Membership m;
  EXPECT_EQ(code(m.set_filter(kGroup, kIf, SourceMode::kInclude, {kA})), EINVAL) << "join first";
  ASSERT_TRUE(m.join(kGroup, kIf));
  ASSERT_TRUE(m.set_filter(kGroup, kIf, SourceMode::kInclude, {kA}));
  EXPECT_EQ(m.hears(kGroup, kB, kIf, true), Heard::kSourceFiltered);
  EXPECT_EQ(code(m.set_filter(kGroup, kIf, SourceMode::kExclude, std::vector<IpAddr>(11, kA))),
            ENOBUFS);
  ASSERT_TRUE(m.set_filter(kGroup, kIf, SourceMode::kInclude, {}));
  EXPECT_TRUE(m.groups().empty());
  for (uint32_t i = 0; i < Membership::kMaxGroups; ++i)
    ASSERT_TRUE(m.join(IpAddr::v4(be32(0xef000000 + i)), kIf));
  EXPECT_EQ(code(m.join(kGroup, kIf)), ENOBUFS);
  EXPECT_TRUE(m.join(ip("ff15::1"), kIf)) << "the limit is IPv4's";
}

// The same random calls on a kernel socket (groups on the loopback interface, nothing is sent): the
// same errors.
TEST(Membership, ErrorsEqualTheKernels) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(fd, 0);
  Membership m;
  std::mt19937 rng(11);
  int accepted = 0;
  const auto raw = [](const IpAddr& a) { return in_addr{a.as_v4().raw()}; };
  const in_addr lo = raw(ip("127.0.0.1"));
  for (int i = 0; i < 3000; ++i) {
    const IpAddr group = IpAddr::v4(be32(0xef010200 + static_cast<uint32_t>(rng() % 3)));
    const IpAddr source = IpAddr::v4(be32(0x0a000001 + static_cast<uint32_t>(rng() % 12)));
    const ip_mreq plain{raw(group), lo};
    ip_mreq_source with{};
    with.imr_multiaddr = raw(group);
    with.imr_interface = lo;
    with.imr_sourceaddr = raw(source);
    const auto kernel = [&](int option, const auto& arg) {
      return setsockopt(fd, IPPROTO_IP, option, &arg, sizeof arg) == 0 ? 0 : errno;
    };
    const char* what = "";
    int want = 0;
    int got = 0;
    switch (rng() % 8) {
      case 0:
        what = "join", want = kernel(IP_ADD_MEMBERSHIP, plain), got = code(m.join(group, kIf));
        break;
      case 1:
        what = "leave", want = kernel(IP_DROP_MEMBERSHIP, plain), got = code(m.leave(group, kIf));
        break;
      case 2:
      case 3:
        what = "join source", want = kernel(IP_ADD_SOURCE_MEMBERSHIP, with),
        got = code(m.join_source(group, source, kIf));
        break;
      case 4:
        what = "leave source", want = kernel(IP_DROP_SOURCE_MEMBERSHIP, with),
        got = code(m.leave_source(group, source, kIf));
        break;
      case 5:
      case 6:
        what = "block", want = kernel(IP_BLOCK_SOURCE, with),
        got = code(m.block(group, source, kIf));
        break;
      default:
        what = "unblock", want = kernel(IP_UNBLOCK_SOURCE, with),
        got = code(m.unblock(group, source, kIf));
        break;
    }
    accepted += want == 0 ? 1 : 0;
    ASSERT_EQ(got, want) << "call " << i << ": " << what << " " << group.str() << " "
                         << source.str();
  }
  EXPECT_GT(accepted, 500) << "the kernel refuses for another reason";
  close(fd);
}

}  // namespace
}  // namespace vireo::udp
