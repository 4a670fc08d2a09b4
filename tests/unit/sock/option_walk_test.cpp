// Every option there is, by the manual's pages, the kernel's headers and the kernel itself: each
// has a class (stack/sock/options/table.h), and on a carried socket it is what that says. What
// setsockopt and getsockopt answer is compared with the kernel's own sockets in the same run.
#include <linux/in6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/if.h>
#include <poll.h>

#include <array>
#include <cctype>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "stack/sock/options/table.h"
#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

std::vector<std::reference_wrapper<const SocketOption>> all_options() {
  std::vector<std::reference_wrapper<const SocketOption>> all;
  for (const OptionLevel* level : option_levels())
    all.insert(all.end(), level->rows.begin(), level->rows.end());
  return all;
}

constexpr int kLevels[] = {SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_UDP};

/// Names of the headers that are no options, but values, flags, messages of cmsg(3).
bool is_no_option(std::string_view name) {
  constexpr std::string_view kFamilies[] = {
      "IP_PMTUDISC_",  "IPV6_PMTUDISC_", "IP_DEFAULT_",    "IP_MSFILTER_SIZE",  "IPV6_FL_",
      "IPV6_TLV_",     "IPV6_PRIORITY_", "IPV6_FLOWINFO_", "IPV6_PREFER_",      "MCAST_EXCLUDE",
      "MCAST_INCLUDE", "TCP_MSS_",       "TCP_REPAIR_O",   "TCP_MD5SIG_MAXKEY", "TCP_MD5SIG_FLAG",
      "TCP_RECEIVE_",  "TCP_CM_INQ",     "TCP_AO_MAXKEY",  "TCP_AO_KEYF_",      "UDP_ENCAP_"};
  if (name == "IPV6_FLOWINFO_SEND") return false;
  for (const std::string_view f : kFamilies)
    if (name.starts_with(f)) return true;
  return false;
}

std::map<std::string, int> options_in(const char* header,
                                      std::initializer_list<const char*> begins) {
  std::map<std::string, int> found;
  std::ifstream in(header);
  EXPECT_TRUE(in.good()) << header;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string define, name, value;
    words >> define >> name >> value;
    if (define != "#define" || value.empty() || is_no_option(name)) continue;
    char* end = nullptr;
    const long number = std::strtol(value.c_str(), &end, 0);
    if (*end != '\0') continue;
    for (const char* b : begins)
      if (name.starts_with(b)) found[name] = static_cast<int>(number);
  }
  return found;
}

TEST(OptionWalk, EveryOptionOfTheHeadersIsClassed) {
  const struct {
    const char* header;
    std::initializer_list<const char*> begins;
    std::initializer_list<int> levels;
    size_t least;
  } rows[] = {{"/usr/include/asm-generic/socket.h", {"SO_"}, {SOL_SOCKET}, 65},
              {"/usr/include/linux/in.h", {"IP_", "MCAST_"}, {IPPROTO_IP}, 40},
              {"/usr/include/linux/in.h", {"MCAST_"}, {IPPROTO_IPV6}, 7},
              {"/usr/include/linux/in6.h", {"IPV6_"}, {IPPROTO_IPV6}, 50},
              {"/usr/include/linux/tcp.h", {"TCP_"}, {IPPROTO_TCP}, 35},
              {"/usr/include/linux/udp.h", {"UDP_"}, {IPPROTO_UDP}, 6}};
  for (const auto& r : rows) {
    const auto found = options_in(r.header, r.begins);
    EXPECT_GE(found.size(), r.least) << r.header;
    for (const auto& [name, number] : found)
      for (const int level : r.levels) {
        const SocketOption* o = find_option(level, number);
        EXPECT_TRUE(o != nullptr) << name << " = " << number << ": give it a row and a class";
        if (o != nullptr && number != SO_TIMESTAMPING) {
          EXPECT_EQ(o->text, name);
        }
      }
  }
}

/// The pages of Debian's manpages, where they are.
TEST(OptionWalk, EveryOptionOfTheManualIsClassed) {
  std::set<std::string> classed;
  for (const SocketOption& o : all_options()) classed.insert(o.text);
  // Other names of the same, those of other systems, and what is gone from Linux.
  const std::set<std::string> others = {
      "SO_DETACH_BPF",           "SO_GET_FILTER",  "SO_TIMESTAMP", "SO_TIMESTAMPNS",
      "SO_TIMESTAMPING",         "SO_RCVTIMEO",    "SO_SNDTIMEO",  "IP_RECVORIGDSTADDR",
      "IPV6_RECVORIGDSTADDR",    "IP_RCVDSTADDR",  "IP_RECVIF",    "IPV6_PKTOPTIONS",
      "TCP_COOKIE_TRANSACTIONS", "TCP_SYNQ_HSIZE", "TCP_",         "SO_EE_OFFENDER"};
  int pages = 0;
  for (const char* page : {"socket", "ip", "ipv6", "tcp", "udp"}) {
    const std::string command = std::string("zcat /usr/share/man/man7/") + page +
                                ".7.gz 2>/dev/null | grep -ow "
                                "'\\(SO\\|IP\\|IPV6\\|TCP\\|UDP\\)_[A-Z0-9_]*' | sort -u";
    FILE* f = ::popen(command.c_str(), "r");
    char line[128];
    bool any = false;
    while (std::fgets(line, sizeof line, f) != nullptr) {
      const std::string name(line, std::strcspn(line, "\n"));
      any = true;
      if (is_no_option(name) || others.contains(name) || name.starts_with("SO_EE_")) continue;
      EXPECT_TRUE(classed.contains(name)) << page << "(7): " << name;
    }
    ::pclose(f);
    pages += any ? 1 : 0;
  }
  if (pages == 0) GTEST_SKIP() << "no manual here";
}

/// Those that are newer than the headers: the kernel has them if it answers anything but
/// ENOPROTOOPT.
TEST(OptionWalk, EveryOptionOfThisKernelIsClassed) {
  for (const int domain : {AF_INET, AF_INET6})
    for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
      const int fd = ::socket(domain, type, 0);
      for (const int level : kLevels)
        for (int name = 1; name < 128; ++name) {
          if (find_option(level, name) != nullptr) continue;
          std::array<char, 256> value{};
          socklen_t n = sizeof value;
          const bool gets = ::getsockopt(fd, level, name, value.data(), &n) == 0 ||
                            (errno != ENOPROTOOPT && errno != EOPNOTSUPP);
          value.fill(0);
          const bool sets = ::setsockopt(fd, level, name, value.data(), sizeof(int)) == 0 ||
                            (errno != ENOPROTOOPT && errno != EOPNOTSUPP);
          EXPECT_FALSE(gets || sets) << "level " << level << " option " << name
                                     << " has no class, and this kernel knows it";
        }
      ::close(fd);
    }
}

// ---- what it does

enum class State : uint8_t { kNew, kBound, kListener, kClient, kServer };
constexpr const char* kStates[] = {"new", "bound", "listener", "client", "server"};

struct Case {
  int domain;
  int type;
  State state;
};

/// A socket in a state, with what it takes to be in it.
class Made {
 public:
  Made(Api& a, Api& b, const Case& c) : a_(a), b_(b) {
    const bool v6 = c.domain == AF_INET6;
    const auto bind = [&](Api& api, int s) { EXPECT_EQ(v6 ? api.bind6(s, 0) : api.bind(s, 0), 0); };
    switch (c.state) {
      case State::kNew:
        fd = a.socket(c.domain, c.type);
        break;
      case State::kBound:
        fd = a.socket(c.domain, c.type);
        bind(a, fd);
        break;
      case State::kListener:
        fd = a.socket(c.domain, c.type);
        bind(a, fd);
        EXPECT_EQ(a.listen(fd), 0);
        break;
      case State::kClient:
      case State::kServer: {
        const bool dials = c.state == State::kClient;
        Api& here = a_;
        Api& there = b_;
        Api& server = dials ? there : here;
        Api& client = dials ? here : there;
        const int l = server.socket(c.domain, c.type);
        bind(server, l);
        const bool tcp = c.type == SOCK_STREAM;
        if (tcp) {
          EXPECT_EQ(server.listen(l), 0);
        }
        const uint16_t port = port_of(server.getsockname(l));
        const auto to = v6 ? address6(server.host(), port) : address(server.host(), port);
        const int d = client.socket(c.domain, c.type);
        EXPECT_EQ(client.connect(d, sockaddr_of(to), length(to)), 0);
        int s = l;
        if (tcp) {
          s = server.accept(l);
          server.close(l);
        }
        fd = dials ? d : s;
        other_ = dials ? s : d;
        break;
      }
    }
    EXPECT_GE(fd, 0);
  }
  ~Made() {
    const linger at_once{1, 0};
    (void)a_.setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    a_.close(fd);
    if (other_ >= 0) b_.close(other_);
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  int fd = -1;

 private:
  Api& a_;
  Api& b_;
  int other_ = -1;
};

struct Answer {
  int result = 0;
  socklen_t length = 0;
  std::array<unsigned char, 256> value{};
  bool operator==(const Answer&) const = default;
};
std::string text(const Answer& a) {
  std::string s = std::to_string(a.result) + ", " + std::to_string(a.length) + " bytes:";
  for (socklen_t i = 0; i < std::min<socklen_t>(a.length, 12); ++i)
    s += " " + std::to_string(a.value[i]);
  return s;
}

Answer get(Api& api, int fd, const SocketOption& o, socklen_t room) {
  Answer a;
  a.length = room;
  a.result = api.getsockopt(fd, o.level, o.name, a.value.data(), &a.length);
  if (a.result != 0) {
    a.length = 0;
    a.value.fill(0);
  }
  return a;
}

/// Of a connection, a path or a clock: not the same twice, or tested elsewhere.
bool is_of_the_moment(const SocketOption& o) {
  const std::set<std::string_view> names = {
      "TCP_INFO",     "TCP_TIMESTAMP",  "TCP_CC_INFO",
      "SO_COOKIE",    "SO_MEMINFO",     "SO_INCOMING_CPU",
      "SO_PEERNAME",  "TCP_MAXSEG",     "SO_INCOMING_NAPI_ID",
      "SO_SNDBUF",    "SO_RCVBUF",      "IP_MTU",
      "IPV6_MTU",     "IPV6_PATHMTU",   "TCP_WINDOW_CLAMP",
      "SO_PEERPIDFD", "TCP_CONGESTION", "TCP_ZEROCOPY_RECEIVE",
      "TCP_QUICKACK", "SO_ACCEPTCONN",  "SO_RESERVE_MEM",
      "IP_PROTOCOL"};
  return names.contains(o.text);
}

/// Those to which a small number says more than on or off: an fd, a pointer's structure, the
/// loopback interface.
bool needs_care(const SocketOption& o) {
  const std::set<std::string_view> names = {"TCP_REPAIR", "SO_ATTACH_BPF", "SO_DEVMEM_DONTNEED",
                                            "SO_BINDTOIFINDEX"};
  return names.contains(o.text);
}

class OptionCases : public testing::TestWithParam<Case> {
 protected:
  Api ka{hosts().a, Side::kKernel}, kb{hosts().b, Side::kKernel};
  Api va{hosts().a, Side::kVireo}, vb{hosts().b, Side::kVireo};
  bool is_udp() const { return GetParam().type == SOCK_DGRAM; }
  bool is_ours(int fd) const { return va.is_carried(fd) || va.is_listening_carried(fd); }
};
INSTANTIATE_TEST_SUITE_P(
    All, OptionCases,
    testing::Values(
        Case{AF_INET, SOCK_STREAM, State::kNew}, Case{AF_INET, SOCK_STREAM, State::kListener},
        Case{AF_INET, SOCK_STREAM, State::kClient}, Case{AF_INET, SOCK_STREAM, State::kServer},
        Case{AF_INET6, SOCK_STREAM, State::kNew}, Case{AF_INET6, SOCK_STREAM, State::kListener},
        Case{AF_INET6, SOCK_STREAM, State::kClient}, Case{AF_INET6, SOCK_STREAM, State::kServer},
        Case{AF_INET, SOCK_DGRAM, State::kNew}, Case{AF_INET, SOCK_DGRAM, State::kBound},
        Case{AF_INET, SOCK_DGRAM, State::kClient}, Case{AF_INET6, SOCK_DGRAM, State::kBound},
        Case{AF_INET6, SOCK_DGRAM, State::kClient}),
    [](const auto& i) {
      return std::string(i.param.type == SOCK_STREAM ? "tcp" : "udp") +
             (i.param.domain == AF_INET ? "4_" : "6_") + kStates[static_cast<int>(i.param.state)];
    });

TEST_P(OptionCases, WhatIsReadIsTheKernels) {
  const Made k(ka, kb, GetParam());
  const Made v(va, vb, GetParam());
  for (const SocketOption& o : all_options()) {
    if (is_of_the_moment(o) || needs_care(o)) continue;
    // Of an accepted connection, on the kernel: as the segment came that opened it.
    const std::set<std::string_view> as_it_came = {"IP_MULTICAST_TTL", "IPV6_MULTICAST_HOPS",
                                                   "IPV6_MULTICAST_IF"};
    if (!is_udp() && as_it_came.contains(o.text)) continue;
    for (const socklen_t room : {socklen_t{4}, socklen_t{1}, socklen_t{64}, socklen_t{0}}) {
      const Answer want = get(ka, k.fd, o, room);
      const Answer got = get(va, v.fd, o, room);
      EXPECT_TRUE(got == want) << o.text << ", room for " << room << ": kernel " << text(want)
                               << "; Vireo " << text(got);
    }
  }
}

/// Each on a socket of its own. Whatever the kernel accepts is honoured, harmless, or makes the
/// socket the kernel's by name; on a connection that cannot become the kernel's, it is refused.
TEST_P(OptionCases, WhatIsSetIsOfItsClass) {
  int left = 0, kept = 0, refused = 0;
  for (const SocketOption& o : all_options()) {
    if (needs_care(o)) continue;
    for (const int value : {1, 0}) {
      SCOPED_TRACE(std::string(o.text) + " = " + std::to_string(value));
      const Made k(ka, kb, GetParam());
      const Made v(va, vb, GetParam());
      const bool ours = is_ours(v.fd);
      EXPECT_EQ(ours, GetParam().state != State::kNew);
      const int want = ka.setsockopt(k.fd, o.level, o.name, value);
      const int got = va.setsockopt(v.fd, o.level, o.name, value);
      const OptionClass c = o.of(is_udp());
      const bool leaves = o.leaves_with(value, sizeof value, is_udp());
      const bool is_tcp_connected = !is_udp() && GetParam().state >= State::kClient;
      if (want != 0) {
        EXPECT_LT(got, 0);
        if (!(is_tcp_connected && (c == OptionClass::kLeaves || c == OptionClass::kRefused))) {
          EXPECT_EQ(got, want);
          EXPECT_EQ(is_ours(v.fd), ours);
        }
        continue;
      }
      if (got != 0) {
        EXPECT_TRUE(is_tcp_connected && leaves) << got;
        EXPECT_TRUE(is_ours(v.fd));
        ++refused;
        continue;
      }
      if (!leaves) {
        EXPECT_EQ(is_ours(v.fd), ours);
        ++kept;
      } else {
        EXPECT_FALSE(is_ours(v.fd));
        const Handle h = fd_table().find(v.fd);
        if (ours) {
          EXPECT_EQ(h->stats->carriage, Carriage::kOption);
          EXPECT_STREQ(h->stats->detail, o.text);
        } else {
          EXPECT_EQ(h->forced.why, Carriage::kOption);
          EXPECT_STREQ(option_of(h->forced.option)->text, o.text);
        }
        ++left;
      }
      if (is_of_the_moment(o)) continue;
      const Answer reads = get(ka, k.fd, o, 64);
      const Answer ours_reads = get(va, v.fd, o, 64);
      EXPECT_TRUE(ours_reads == reads)
          << "kernel " << text(reads) << "; Vireo " << text(ours_reads);
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(left + refused, 10);
  RecordProperty("kept", kept);
  RecordProperty("left", left);
  RecordProperty("refused", refused);
}

// ---- those of which much depends

class Leaving : public BothSides {
 protected:
  void expect_reason(int fd, const char* option) const {
    if (!ours()) return;
    const Handle h = fd_table().find(fd);
    ASSERT_TRUE(h);
    EXPECT_EQ(h->mode.load(), Mode::kKernel);
    EXPECT_EQ(h->stats->carriage, Carriage::kOption);
    EXPECT_STREQ(h->stats->detail, option);
  }
  /// Bytes both ways, though it has changed sides.
  void expect_goes_on(int c, int s) {
    ASSERT_EQ(a.send(c, "there"), 5);
    ASSERT_TRUE(b.await(s, POLLIN));
    EXPECT_EQ(b.recv(s), "there");
    ASSERT_EQ(b.send(s, "back"), 4);
    ASSERT_TRUE(a.await(c, POLLIN));
    EXPECT_EQ(a.recv(c), "back");
  }
  int listener() {
    const int l = b.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(b.bind(l, 0), 0);
    return l;
  }
  /// By the kernel's wire.
  std::pair<int, int> connect_to(int l) {
    const auto to = address(b.host(), port_of(b.getsockname(l)));
    const int c = ka.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(ka.connect(c, sockaddr_of(to), length(to)), 0);
    return {c, b.accept(l)};
  }
  Api ka{hosts().a, Side::kKernel};
};
INSTANTIATE_TEST_SUITE_P(Sides, Leaving, testing::Values(Side::kKernel, Side::kVireo),
                         [](const auto& i) {
                           return i.param == Side::kKernel ? "kernel" : "vireo";
                         });

/// A key for the other host's segments: who has one neither sends nor takes unsigned ones.
struct Key {
  tcp_md5sig md5{};
  struct {  // linux/tcp.h tcp_ao_add, which is newer than the headers
    sockaddr_storage addr{};
    char algorithm[64] = "hmac(sha1)";
    int32_t ifindex = 0;
    uint32_t flags = 0;
    uint16_t reserved = 0;
    uint8_t prefix = 32, send_id = 100, receive_id = 100, mac_bytes = 12, key_flags = 0,
            key_bytes = 4;
    uint8_t key[80] = {1, 2, 3, 4};
  } ao;
  explicit Key(const Host& peer) {
    const sockaddr_storage to = test::address(peer, 0);
    std::memcpy(&md5.tcpm_addr, &to, sizeof md5.tcpm_addr);
    md5.tcpm_keylen = 4;
    ao.addr = to;
  }
};
constexpr int kTcpAoAddKey = 38;

TEST_P(Leaving, WhatIsSignedIsTheKernels) {
  for (const bool is_ao : {false, true}) {
    SCOPED_TRACE(is_ao ? "TCP_AO_ADD_KEY" : "TCP_MD5SIG");
    const auto sign = [&](Api& api, int fd, const Host& peer) {
      const Key key(peer);
      return is_ao ? api.setsockopt(fd, IPPROTO_TCP, kTcpAoAddKey, &key.ao, sizeof key.ao)
                   : api.setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &key.md5, sizeof key.md5);
    };
    const int l = listener();
    const int signs = sign(b, l, a.host());
    EXPECT_TRUE(signs == 0 || signs == -ENOPROTOOPT || signs == -ENOENT) << signs;
    if (signs != 0) {  // a kernel without it
      b.close(l);
      continue;
    }
    EXPECT_EQ(b.listen(l), 0);
    expect_reason(l, is_ao ? "TCP_AO_ADD_KEY" : "TCP_MD5SIG");
    const auto to = address(b.host(), port_of(b.getsockname(l)));
    const int c = a.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(sign(a, c, b.host()), 0);
    ASSERT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
    expect_reason(c, is_ao ? "TCP_AO_ADD_KEY" : "TCP_MD5SIG");
    const int s = b.accept(l);
    expect_reason(s, is_ao ? "TCP_AO_ADD_KEY" : "TCP_MD5SIG");
    expect_goes_on(c, s);
    for (const int fd : {l, s}) b.close(fd);
    a.close(c);
  }
}

// From then on the peer's unsigned segments are dropped, and ours would be by one that signs.
TEST_P(Leaving, AConnectionThatIsToBeSignedIsCarriedNoMore) {
  const auto [c, s] = connection();
  a.host().enter();
  const Key key(b.host());
  const int done = a.setsockopt(c, IPPROTO_TCP, TCP_MD5SIG, &key.md5, sizeof key.md5);
  EXPECT_TRUE(done == 0 || done == -ENOPROTOOPT) << done;
  if (done == 0) expect_reason(c, "TCP_MD5SIG");
  const linger at_once{1, 0};
  (void)a.setsockopt(c, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  a.close(c);
  b.close(s);
}

// Where the wire of ours is not the kernel's, it cannot go on: tests/interop/hand_over.py has that.
TEST_P(Leaving, AConnectionBecomesTheKernels) {
  for (const bool accepted : {false, true}) {
    const auto [c, s] = connection();
    EXPECT_EQ(a.send(c, "before"), 6);
    EXPECT_EQ(b.recv(s), "before");
    EXPECT_EQ(b.send(s, "unread"), 6);
    ASSERT_TRUE(a.await(c, POLLIN));
    Api& api = accepted ? b : a;
    const int fd = accepted ? s : c;
    api.host().enter();  // where the kernel's socket is made
    EXPECT_EQ(api.setsockopt(fd, IPPROTO_IP, IP_RECVERR, 1), 0);
    EXPECT_EQ(api.getsockopt(fd, IPPROTO_IP, IP_RECVERR), 1);
    expect_reason(fd, "IP_RECVERR");
    EXPECT_EQ(a.recv(c), "unread");
    if (!ours()) expect_goes_on(c, s);
    a.close(c);
    b.close(s);
  }
}

TEST_P(Leaving, AnAcceptedOneSaysWhatItsListenerSays) {
  const int l = listener();
  EXPECT_EQ(b.setsockopt(l, IPPROTO_TCP, TCP_SAVE_SYN, 1), 0);
  EXPECT_EQ(b.listen(l), 0);
  expect_reason(l, "TCP_SAVE_SYN");
  const auto [c, s] = connect_to(l);
  ASSERT_GE(s, 0);
  expect_reason(s, "TCP_SAVE_SYN");
  std::array<char, 256> syn{};
  socklen_t n = syn.size();
  EXPECT_EQ(b.getsockopt(s, IPPROTO_TCP, TCP_SAVED_SYN, syn.data(), &n), 0);
  EXPECT_GE(n, 40U);
  // One that was carried before.
  const int l2 = listener();
  EXPECT_EQ(b.listen(l2), 0);
  EXPECT_EQ(b.is_listening_carried(l2), ours());
  EXPECT_EQ(b.setsockopt(l2, IPPROTO_TCP, TCP_SAVE_SYN, 1), 0);
  const auto [c2, s2] = connect_to(l2);
  expect_reason(l2, "TCP_SAVE_SYN");
  expect_reason(s2, "TCP_SAVE_SYN");
  for (const int fd : {l, s, l2, s2}) b.close(fd);
  for (const int fd : {c, c2}) ka.close(fd);
}

TEST_P(Leaving, TheWayOfUnicastIsTheKernels) {
  a.host().enter();
  const int link = static_cast<int>(htonl(if_nametoindex("eth0")));
  for (const bool v6 : {false, true}) {
    const int u = a.socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM);
    EXPECT_EQ(v6 ? a.bind6(u, 0) : a.bind(u, 0), 0);
    EXPECT_EQ(a.is_carried(u), ours());
    const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
    const int name = v6 ? IPV6_UNICAST_IF : IP_UNICAST_IF;
    EXPECT_EQ(a.setsockopt(u, level, name, link), 0);
    expect_reason(u, v6 ? "IPV6_UNICAST_IF" : "IP_UNICAST_IF");
    EXPECT_EQ(a.getsockopt(u, level, name), link);
    a.close(u);
  }
}

TEST_P(Leaving, WhatNobodyKnowsChangesNothing) {
  const auto [c, s] = connection();
  for (const int level : {1, 0, 6, 255, 284})  // SOL_SOCKET, SOL_IP, SOL_TCP, SOL_RAW, SOL_MPTCP
    EXPECT_EQ(a.setsockopt(c, level, 127, 1), -ENOPROTOOPT) << level;
  EXPECT_EQ(a.is_carried(c), ours());
  expect_goes_on(c, s);
  a.close(c);
  b.close(s);
}

TEST_P(Leaving, LostDatagramsAreCounted) {
  const int r = b.socket(AF_INET, SOCK_DGRAM);
  EXPECT_EQ(b.setsockopt(r, SOL_SOCKET, SO_RCVBUF, 4096), 0);
  EXPECT_EQ(b.setsockopt(r, SOL_SOCKET, SO_RXQ_OVFL, 1), 0);
  EXPECT_EQ(b.getsockopt(r, SOL_SOCKET, SO_RXQ_OVFL), 1);
  EXPECT_EQ(b.bind(r, 0), 0);
  EXPECT_EQ(b.is_carried(r), ours());
  const auto to = address(b.host(), port_of(b.getsockname(r)));
  const int u = a.socket(AF_INET, SOCK_DGRAM);
  constexpr unsigned kSent = 64;
  for (unsigned i = 0; i < kSent; ++i) EXPECT_EQ(a.sendto(u, std::string(500, 'x'), to), 500);
  ASSERT_TRUE(b.await(r, POLLIN));
  ::usleep(50'000);
  const auto receive = [&]() -> std::optional<uint32_t> {
    char text[512];
    iovec v{text, sizeof text};
    alignas(cmsghdr) char control[128];
    msghdr m{};
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    if (b.recvmsg(r, m, MSG_DONTWAIT) < 0) return std::nullopt;
    for (cmsghdr* h = CMSG_FIRSTHDR(&m); h != nullptr; h = CMSG_NXTHDR(&m, h)) {
      uint32_t lost = 0;
      if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SO_RXQ_OVFL) continue;
      std::memcpy(&lost, CMSG_DATA(h), sizeof lost);
      return lost;
    }
    return 0;
  };
  uint32_t received = 0;
  while (receive()) ++received;
  EXPECT_GT(received, 0U);
  EXPECT_LT(received, kSent);
  EXPECT_EQ(a.sendto(u, "one more", to), 8);
  ASSERT_TRUE(b.await(r, POLLIN));
  EXPECT_EQ(receive(), kSent - received);
  a.close(u);
  b.close(r);
}

}  // namespace
}  // namespace vireo::test
