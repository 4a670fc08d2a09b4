// Every option there is, by the manual's pages, the kernel's headers and the kernel itself: each
// has a class (stack/sock/option_table.h), and on a carried socket it is what that says. What
// setsockopt and getsockopt answer is compared with the kernel's own sockets in the same run.
#include <linux/in6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <array>
#include <cctype>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "stack/sock/option_table.h"
#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

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

std::map<std::string, int> options_of(const char* header,
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
    const auto found = options_of(r.header, r.begins);
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
    const auto bind = [&](Api& api, int fd) {
      EXPECT_EQ(v6 ? api.bind6(fd, 0) : api.bind(fd, 0), 0);
    };
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
      "TCP_QUICKACK", "SO_ACCEPTCONN",  "SO_RESERVE_MEM"};
  return names.contains(o.text);
}

/// Whom getsockopt asks for what is not the kernel's: a number of an fd, or a pointer's structure.
bool needs_care(const SocketOption& o) {
  const std::set<std::string_view> names = {"TCP_REPAIR", "SO_ATTACH_BPF", "SO_DEVMEM_DONTNEED"};
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
    for (const socklen_t room : {socklen_t{4}, socklen_t{1}, socklen_t{64}, socklen_t{0}}) {
      const Answer want = get(ka, k.fd, o, room);
      const Answer got = get(va, v.fd, o, room);
      EXPECT_EQ(got, want) << o.text << ", room for " << room << ": kernel " << text(want)
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
      const bool leaves = o.leaves_with(&value, sizeof value, is_udp());
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
          EXPECT_STREQ(all_options()[h->forced.option].text, o.text);
        }
        ++left;
      }
      if (is_of_the_moment(o)) continue;
      const Answer reads = get(ka, k.fd, o, 64);
      const Answer ours_reads = get(va, v.fd, o, 64);
      EXPECT_EQ(ours_reads, reads) << "kernel " << text(reads) << "; Vireo " << text(ours_reads);
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(left + refused, 10);
  RecordProperty("kept", kept);
  RecordProperty("left", left);
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace vireo::test
