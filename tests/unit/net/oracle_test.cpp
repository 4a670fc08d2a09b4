// Random addresses, routes and rules; thousands of destinations; our answer must be the kernel's
// (RTM_GETROUTE).
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "stack/net/lookup.h"
#include "tests/unit/net/lab.h"

namespace vireo::net {
namespace {

constexpr int kLinks = 4;

class Oracle {
 public:
  Oracle(unsigned seed, bool v6) : rng_(seed), v6_(v6), bound_(!v6 || seed % 2 == 0) {}

  void build();
  void compare(int destinations);

 private:
  unsigned below(unsigned n) { return std::uniform_int_distribution<unsigned>(0, n - 1)(rng_); }
  bool chance(unsigned percent) { return below(100) < percent; }
  std::string link() { return "va" + std::to_string(below(kLinks)); }
  IpAddr random_addr(unsigned subnets);
  std::string prefix();
  std::string gateway(unsigned link_index);
  std::string route();
  std::string rule(unsigned priority);
  void compare_one(const Snapshot& s, const LookupKey& key);
  void ip(const std::string& batch) {
    // Some random lines contradict each other: "-force" goes on, and what the kernel took is the
    // test's subject.
    ASSERT_TRUE(shell(
        "ip -force " + std::string(v6_ ? "-6" : "-4") + " -batch - 2>/dev/null || true", batch));
  }

  std::mt19937 rng_;
  bool v6_;
  /// Keys with an interface. Not in IPv6 together with rules on the source: a query by netlink
  /// cannot tell the kernel both what a bound socket would.
  bool bound_;
};

/// Few distinct bits, so that prefixes nest and collide.
IpAddr Oracle::random_addr(unsigned subnets) {
  const unsigned a = below(subnets), b = below(4), c = below(6);
  const std::string text =
      v6_ ? fmt::format("fd00:{:x}:{:x}::{:x}", a, b, c) : fmt::format("10.{}.{}.{}", a, b, c);
  return *IpAddr::parse(text);
}

std::string Oracle::prefix() {
  if (chance(6)) return "default";
  const unsigned bits = v6_ ? 16 + 4 * below(29) : 8 + below(25);
  IpAddr a = random_addr(8);
  std::array<uint8_t, 16> b = a.bytes();
  for (unsigned i = (v6_ ? 0U : 96U) + bits; i < 128; ++i)
    b[i / 8] = static_cast<uint8_t>(b[i / 8] & ~(0x80U >> i % 8));
  in6_addr in;
  std::memcpy(&in, b.data(), 16);
  return IpAddr::v6(in).str() + "/" + std::to_string(bits);
}

std::string Oracle::gateway(unsigned i) {
  return v6_ ? fmt::format("fd00:{:x}:0::9", i) : fmt::format("10.{}.0.9", i);
}

std::string Oracle::route() {
  static constexpr const char* kVerbs[] = {"add", "add", "add", "append", "replace", "prepend"};
  std::string line = std::string("route ") + kVerbs[below(v6_ ? 5 : 6)] + " ";
  const unsigned kind = below(100);
  if (kind < 4)
    return line + "blackhole " + prefix() + " metric " + std::to_string(below(3) + 1) + "\n";
  if (kind < 8)
    return line + "unreachable " + prefix() + " metric " + std::to_string(below(3) + 1) + "\n";
  if (kind < 12)
    return line + "prohibit " + prefix() + " metric " + std::to_string(below(3) + 1) + "\n";
  line += (kind < 15 ? "throw " : "") + prefix();
  if (!v6_ && chance(10)) line += " tos 0x10";
  static constexpr const char* kTables[] = {"main", "main", "100", "200"};
  line += fmt::format(" metric {} table {}", 1 + below(3), kTables[below(4)]);
  if (kind < 15) return line + "\n";
  if (chance(15)) line += fmt::format(" mtu {}", 1300 + below(200));
  const unsigned i = below(kLinks);
  if (chance(15)) {
    const unsigned j = (i + 1) % kLinks;
    return line + fmt::format(" nexthop via {} dev va{} weight 2 nexthop via {} dev va{}\n",
                              gateway(i), i, gateway(j), j);
  }
  if (chance(15))
    line += v6_ ? fmt::format(" src fd00:{}::1", below(kLinks))
                : fmt::format(" src 10.{}.0.1", below(kLinks));
  if (chance(60)) line += " via " + gateway(i);
  return line + fmt::format(" dev va{}\n", i);
}

std::string Oracle::rule(unsigned priority) {
  std::string line = fmt::format("rule add pref {}", priority);
  if (chance(12)) line += " not";
  switch (below(9)) {
    case 0:
      line += v6_ && bound_ ? " iif lo" : " from " + prefix();
      break;
    case 1:
      line += " to " + prefix();
      break;
    case 2:
      line += " fwmark 0x1/0x3";
      break;
    case 3:
      line += " uidrange 1000-1999";
      break;
    case 4:
      line += " oif " + link();
      break;
    case 5:
      line += " iif lo";
      break;
    case 6:
      line += " tos 0x10";
      break;
    case 7:
      line += " ipproto 6 dport 80-90";  // by number: names need /etc/protocols
      break;
    default:
      line += " ipproto 17";
      break;
  }
  switch (below(12)) {
    case 0:
      return line + " prohibit\n";
    case 1:
      return line + " unreachable\n";
    case 2:
      return line + " blackhole\n";
    case 3:
      return line + fmt::format(" goto {}\n", priority + 10 * (1 + below(3)));
    case 4:
      return line + " nop\n";
    case 5:
      return line +
             fmt::format(" lookup main suppress_prefixlength {}\n", v6_ ? below(60) : below(20));
    case 6:
      return line + " lookup 300\n";
    default:
      return line + (chance(50) ? " lookup 100\n" : " lookup 200\n");
  }
}

void Oracle::build() {
  ASSERT_TRUE(
      shell("for c in all default; do echo 0 > /proc/sys/net/ipv6/conf/$c/accept_dad; done"));
  std::string b;
  for (int i = 0; i < kLinks; ++i) {
    b += fmt::format(
        "link add va{0} type veth peer name vb{0}\nlink set va{0} up\nlink set vb{0} up\n", i);
    if (v6_) {
      b += fmt::format("addr add fd00:{:x}::1/{} dev va{} nodad\n", i, 32 + 16 * below(3), i);
      if (chance(70))
        b += fmt::format("addr add fd00:{:x}:{:x}::2/64 dev va{} nodad\n", below(8), i, i);
      if (chance(30))
        b += fmt::format("addr add 2001:db8:{}::3/64 dev va{} nodad preferred_lft 0\n", i, i);
      if (chance(50)) b += fmt::format("addr add 2001:db8:{}::4/64 dev va{} nodad\n", i, i);
    } else {
      b += fmt::format("addr add 10.{}.0.1/{} brd + dev va{}\n", i, 14 + below(12), i);
      if (chance(70)) b += fmt::format("addr add 10.{}.{}.2/24 dev va{}\n", below(8), i, i);
      if (chance(40)) b += fmt::format("addr add 192.168.{}.1/24 scope link dev va{}\n", i, i);
    }
  }
  ip(b);
  b.clear();
  for (int i = 0; i < 120; ++i) b += route();
  for (unsigned i = 0; i < 8; ++i) b += rule(1000 + 10 * i);
  ip(b);
}

std::string show(const Result<NextHop>& r) {
  if (!r) return fmt::format("error {} ({})", strerrordesc_np(r.error().code), r.error().where);
  return fmt::format("kind {} if {} src {} via {} mtu {} table {}", static_cast<int>(r->kind),
                     r->ifindex.value(), r->src.str(), r->via.str(), r->mtu, r->table);
}

bool agree(const Result<NextHop>& a, const Result<NextHop>& b) {
  if (!a || !b) return !a && !b && a.error().code == b.error().code;
  if (a->kind != b->kind || a->ifindex != b->ifindex || a->src != b->src) return false;
  if (a->kind == DestKind::kLocal) return true;
  return a->via == b->via && a->mtu == b->mtu && a->dst_mac == b->dst_mac;
}

void Oracle::compare_one(const Snapshot& s, const LookupKey& asked) {
  const auto kernel = kernel_lookup(s, asked);
  LookupKey key = asked;
  Result<NextHop> first = lookup(s, key);
  Result<NextHop> ours = first;
  // The kernel's flow hash is keyed by a secret: of equal ways out, any will do. It hashes the
  // source too, so that its second look-up may take another way than the one that chose the source.
  bool source_possible = first && kernel && first->src == kernel->src;
  for (uint32_t i = 1; i < 16 && !agree(ours, kernel); ++i) {
    key.flow_hash = i << 28;
    ours = lookup(s, key);
    source_possible |= ours && kernel && ours->src == kernel->src;
  }
  if (source_possible) key.src = kernel->src;
  for (uint32_t i = 1; i < 16 && source_possible && !agree(ours, kernel); ++i) {
    key.flow_hash = i << 28;
    ours = lookup(s, key);
  }
  EXPECT_TRUE(agree(ours, kernel))
      << "to " << key.dst.str() << " from " << key.src.str() << " oif " << key.oif.value()
      << " mark " << key.mark << " tos " << int{key.tos} << " uid " << key.uid << " proto "
      << int{static_cast<uint8_t>(key.proto)} << " dport " << key.dport << " connected "
      << key.connected << "\n ours   " << show(first) << "\n kernel " << show(kernel);
}

bool has_local_route(const Snapshot& s, const Addr& a) {
  const RouteTable* local = s.routes->find(255, !a.addr.is_v4());
  if (local == nullptr) return false;
  return std::ranges::any_of(local->routes(), [&](const Route& r) {
    return r.type == RouteType::kLocal && r.dst == a.addr &&
           (a.addr.is_v4() || r.hop.oif == a.ifindex);
  });
}

void Oracle::compare(int destinations) {
  auto mirror = Mirror::open();
  ASSERT_TRUE(mirror) << mirror.error().where;
  // The kernel adds the local routes of IPv6 addresses from a work queue.
  ASSERT_TRUE(until(**mirror, [](const Snapshot& now) {
    return std::ranges::all_of(now.addrs->all,
                               [&](const Addr& a) { return has_local_route(now, a); });
  }));
  SnapshotStore::Reader reader((*mirror)->store());
  const Snapshot& s = reader.snapshot();
  std::vector<IpAddr> own;
  for (const Addr& a : s.addrs->all)
    if (a.addr.is_v4() != v6_ && !a.addr.is_link_local()) own.push_back(a.addr);
  int answered = 0;
  for (int i = 0; i < destinations && !testing::Test::HasFailure(); ++i) {
    LookupKey k;
    k.dst = random_addr(10);
    if (chance(3)) k.dst = own[below(static_cast<unsigned>(own.size()))];
    if (chance(3)) k.dst = *IpAddr::parse(v6_ ? "ff05::1234" : "239.1.2.3");
    if (chance(3)) k.dst = *IpAddr::parse(v6_ ? "2001:db8:2::77" : "255.255.255.255");
    if (chance(2)) k.dst = *IpAddr::parse(v6_ ? "::1" : "127.0.0.9");
    if (chance(2)) k.dst = *IpAddr::parse(v6_ ? "2001:db8:99::77" : "192.168.2.77");
    if (chance(25)) k.src = own[below(static_cast<unsigned>(own.size()))];
    if (bound_ && (!v6_ || k.src.is_unspecified()) && chance(25))
      k.oif = s.links->find(link())->index;
    // With a source and no socket the kernel's IPv6 takes the interface for a wish only; a bound
    // socket has no such doubt.
    if (chance(30)) k.mark = below(4);
    if (chance(20)) k.tos = 0x10;
    if (chance(30)) k.uid = 1500;
    if (chance(50)) k.proto = IpProto::kUdp;
    k.sport = 40000;
    k.dport = chance(30) ? 85 : 4000;
    k.connected = v6_ || chance(50);
    compare_one(s, k);
    answered += lookup(s, k).has_value();
  }
  if (!testing::Test::HasFailure()) {
    EXPECT_GT(answered, destinations / 20);
  }
}

class OracleTest : public testing::TestWithParam<std::tuple<unsigned, bool>> {};

TEST_P(OracleTest, AgreesWithTheKernel) {
  REQUIRE_ROOT();
  Lab lab;
  lab.run([] {
    Oracle o(std::get<0>(GetParam()), std::get<1>(GetParam()));
    o.build();
    o.compare(1500);
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, OracleTest,
                         testing::Combine(testing::Range(1U, 41U), testing::Bool()),
                         [](const auto& i) {
                           return fmt::format("{}_{}", std::get<1>(i.param) ? "v6" : "v4",
                                              std::get<0>(i.param));
                         });

}  // namespace
}  // namespace vireo::net
