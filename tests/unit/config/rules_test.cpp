#include "config/rules.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace vireo {
namespace {

constexpr Transport kKernel = Transport::kKernel;
constexpr Transport kVireo = Transport::kVireo;

Endpoint at(std::string_view addr, uint16_t port) { return {*IpAddr::parse(addr), port, 0}; }

struct Parsed {
  Rules rules;
  Diagnostics diagnostics;

  Transport server(const Endpoint& local, std::string_view program = "prog",
                   std::string_view id = "id") const {
    return rules.lookup(program, id, Role::kTcpServer, local, {});
  }
  Transport client(const Endpoint& remote, const Endpoint& local = {}) const {
    return rules.lookup("prog", "id", Role::kTcpClient, local, remote);
  }
};

Parsed parse(std::string_view text) {
  Parsed p;
  p.rules = Rules::parse(text, "f.conf", p.diagnostics);
  return p;
}
/// Of a text without a fault.
Parsed good(std::string_view text) {
  Parsed p = parse(text);
  for (const auto& d : p.diagnostics) ADD_FAILURE() << d.text;
  return p;
}
/// The one message of a text with one fault.
std::string fault(std::string_view text) {
  const Parsed p = parse(text);
  return p.diagnostics.size() == 1 ? p.diagnostics[0].text
                                   : std::to_string(p.diagnostics.size()) + " messages";
}

TEST(Rules, NoRuleMeansCarried) {
  EXPECT_EQ(Rules().lookup("p", "i", Role::kTcpClient, {}, at("10.0.0.1", 80)), kVireo);
  EXPECT_EQ(good("").server(at("0.0.0.0", 80)), kVireo);
  EXPECT_EQ(good("\n \t\n# only a comment\n").rules.size(), 0U);
}

TEST(Rules, TheFirstThatFitsWins) {
  const auto p = good(
      "use os tcp_server *:5001\n"
      "use vireo tcp_server *:5000-5010\n"
      "use os tcp_server *:5000-6000\n");
  EXPECT_EQ(p.rules.size(), 3U);
  EXPECT_EQ(p.server(at("0.0.0.0", 5001)), kKernel);
  EXPECT_EQ(p.server(at("0.0.0.0", 5010)), kVireo);
  EXPECT_EQ(p.server(at("0.0.0.0", 5011)), kKernel);
  EXPECT_EQ(p.server(at("0.0.0.0", 6001)), kVireo);
}

TEST(Rules, EachRoleHasItsOwn) {
  const std::pair<const char*, Role> roles[] = {{"tcp_server", Role::kTcpServer},
                                                {"tcp_client", Role::kTcpClient},
                                                {"udp_sender", Role::kUdpSender},
                                                {"udp_receiver", Role::kUdpReceiver},
                                                {"udp_connect", Role::kUdpConnect}};
  for (const auto& [name, role] : roles) {
    const auto p = good("use os " + std::string(name) + " *:*\n");
    for (const auto& other : roles)
      EXPECT_EQ(p.rules.lookup("p", "i", other.second, at("10.0.0.1", 1), at("10.0.0.2", 2)),
                other.second == role ? kKernel : kVireo)
          << name << " " << other.first;
  }
}

TEST(Rules, WhichEndTheFirstAddressMeans) {
  const std::pair<const char*, bool> is_remote[] = {{"tcp_server", false},
                                                    {"udp_receiver", false},
                                                    {"tcp_client", true},
                                                    {"udp_sender", true},
                                                    {"udp_connect", true}};
  constexpr Role kRoles[] = {Role::kTcpServer, Role::kUdpReceiver, Role::kTcpClient,
                             Role::kUdpSender, Role::kUdpConnect};
  for (size_t i = 0; i < std::size(kRoles); ++i) {
    const auto p = good("use os " + std::string(is_remote[i].first) + " 10.0.0.2:2");
    EXPECT_EQ(p.rules.lookup("p", "i", kRoles[i], at("10.0.0.1", 1), at("10.0.0.2", 2)),
              is_remote[i].second ? kKernel : kVireo);
    EXPECT_EQ(p.rules.lookup("p", "i", kRoles[i], at("10.0.0.2", 2), at("10.0.0.1", 1)),
              is_remote[i].second ? kVireo : kKernel);
  }
}

TEST(Rules, BothEnds) {
  const auto p = good("use os tcp_client 192.168.1.0/24:80:10.0.0.0/8:1000-2000\n");
  EXPECT_EQ(p.client(at("192.168.1.7", 80), at("10.1.1.1", 1500)), kKernel);
  EXPECT_EQ(p.client(at("192.168.1.7", 80), at("10.1.1.1", 2001)), kVireo);
  EXPECT_EQ(p.client(at("192.168.1.7", 80), at("11.1.1.1", 1500)), kVireo);
  EXPECT_EQ(p.client(at("192.168.1.7", 81), at("10.1.1.1", 1500)), kVireo);
  EXPECT_EQ(p.client(at("192.168.2.7", 80), at("10.1.1.1", 1500)), kVireo);
  EXPECT_EQ(p.client(at("192.168.1.7", 80), Endpoint{}), kVireo);
}

TEST(Rules, PrefixesMaskTheRuleToo) {
  const auto p = good("use os tcp_client 192.168.1.77/24:*\nuse os tcp_client 10.0.0.0/9:*\n");
  EXPECT_EQ(p.client(at("192.168.1.1", 80)), kKernel);
  EXPECT_EQ(p.client(at("10.127.255.255", 80)), kKernel);
  EXPECT_EQ(p.client(at("10.128.0.0", 80)), kVireo);
  EXPECT_EQ(good("use os tcp_client 0.0.0.0/0:*").client(at("1.2.3.4", 1)), kKernel);
  EXPECT_EQ(good("use os tcp_client 0.0.0.0/0:*").client(at("2001:db8::1", 1)), kVireo);
}

TEST(Rules, Ipv6InBrackets) {
  for (const auto* text : {"use os tcp_client [2001:db8::]/32:80-90:[fe80::]/10:*",
                           "use os tcp_client [2001:db8::/32]:80-90:[fe80::/10]:*"}) {
    const auto p = good(text);
    EXPECT_EQ(p.client(at("2001:db8:1::5", 85), at("fe80::1", 7)), kKernel);
    EXPECT_EQ(p.client(at("2001:db9::5", 85), at("fe80::1", 7)), kVireo);
    EXPECT_EQ(p.client(at("2001:db8:1::5", 91), at("fe80::1", 7)), kVireo);
    EXPECT_EQ(p.client(at("10.0.0.1", 85), at("fe80::1", 7)), kVireo);
  }
  EXPECT_EQ(good("use os tcp_server [::1]:80").server(at("::1", 80)), kKernel);
  EXPECT_EQ(good("use os tcp_server [::1]:80").server(at("::2", 80)), kVireo);
  EXPECT_EQ(good("use os tcp_server [::ffff:10.0.0.0]/104:80").server(at("10.9.9.9", 80)), kKernel);
  EXPECT_EQ(good("use os tcp_server *:80").server(at("2001:db8::1", 80)), kKernel);
}

TEST(Rules, TheFirstApplicationIdThatFitsDecidesAlone) {
  const auto p = good(
      "application-id tcp_lat B1\n"
      "use vireo tcp_server *:80\n"
      "application-id tcp_* *\n"
      "use os tcp_server *:*\n"
      "application-id * *\n"
      "use os tcp_server *:443\n");
  EXPECT_EQ(p.server(at("0.0.0.0", 80), "tcp_lat", "B1"), kVireo);
  EXPECT_EQ(p.server(at("0.0.0.0", 81), "tcp_lat", "B1"), kVireo)
      << "no rule of its block fits: carried";
  EXPECT_EQ(p.server(at("0.0.0.0", 81), "tcp_lat", "B2"), kKernel);
  EXPECT_EQ(p.server(at("0.0.0.0", 81), "/usr/bin/tcp_x", "B2"), kKernel);
  EXPECT_EQ(p.server(at("0.0.0.0", 81), "nginx", "B2"), kVireo);
  EXPECT_EQ(p.server(at("0.0.0.0", 443), "nginx", "B2"), kKernel);
  EXPECT_EQ(p.server(at("0.0.0.0", 81), "tcp_lat", "*"), kVireo)
      << "id * of the process fits every line";
}

TEST(Rules, LinesOfOneProgramAddUp) {
  const auto p = good(
      "application-id a *\nuse os tcp_server *:1\n"
      "application-id b *\nuse os tcp_server *:2\n"
      "application-id a *\nuse os tcp_server *:3\n");
  EXPECT_EQ(p.server(at("0.0.0.0", 3), "a"), kKernel);
  EXPECT_EQ(p.server(at("0.0.0.0", 3), "b"), kVireo);
}

TEST(Rules, LinesBeforeAnyApplicationIdAreForAll) {
  const auto p = good("use os tcp_server *:1\napplication-id a *\nuse os tcp_server *:2\n");
  EXPECT_EQ(p.server(at("0.0.0.0", 1), "a"), kKernel);
  EXPECT_EQ(p.server(at("0.0.0.0", 2), "a"), kVireo) << "the block for all comes first";
}

TEST(Rules, Transports) {
  for (const auto* t : {"vma", "vireo", "*"}) {
    const auto p = good("use " + std::string(t) + " tcp_server *:1\nuse os tcp_server *:*\n");
    EXPECT_EQ(p.server(at("0.0.0.0", 1)), kVireo) << t;
    EXPECT_EQ(p.server(at("0.0.0.0", 2)), kKernel) << t;
  }
  for (const auto* t : {"sdp", "sa"}) {
    const auto p = parse("use " + std::string(t) + " tcp_server *:1\nuse os tcp_server *:*\n");
    EXPECT_EQ(p.server(at("0.0.0.0", 1)), kKernel) << t << " fits nothing";
    ASSERT_EQ(p.diagnostics.size(), 1U);
    EXPECT_EQ(p.diagnostics[0].severity, Severity::kNote);
  }
}

TEST(Rules, BlanksCommentsAndLineEnds) {
  const auto p = good(
      "  use\tos  tcp_server 10.0.0.0 / 8 : 80 - 90   # why not\r\n#\r\nuse os tcp_server *:1#x\n");
  EXPECT_EQ(p.server(at("10.1.1.1", 85)), kKernel);
  EXPECT_EQ(p.server(at("10.1.1.1", 1)), kKernel);
}

TEST(Rules, LogLinesParse) {
  auto p = good(
      "log destination stderr min-level 9\nlog destination file /tmp/v.log\nlog min-level 1\n");
  EXPECT_EQ(p.rules.log().destination, Rules::LogDestination::kFile);
  EXPECT_EQ(p.rules.log().file, "/tmp/v.log");
  EXPECT_EQ(p.rules.log().level, LogLevel::kDebug);
  p = good("log min-level 8 destination syslog # both\n");
  EXPECT_EQ(p.rules.log().destination, Rules::LogDestination::kSyslog);
  EXPECT_EQ(p.rules.log().level, LogLevel::kWarn);
  EXPECT_FALSE(good("use os tcp_server *:1").rules.log().level);
}

TEST(Rules, AFaultNamesFileLineAndColumn) {
  EXPECT_EQ(fault("\nuse os tcp_servr *:80\n"),
            "f.conf:2:8: unknown role 'tcp_servr'; known: tcp_server, tcp_client, udp_sender, "
            "udp_receiver, udp_connect; "
            "nearest: tcp_server; line ignored");
  EXPECT_EQ(fault("use oss tcp_server *:80"),
            "f.conf:1:5: unknown transport 'oss'; known: vireo, vma, os, sdp, sa, *; nearest: os; "
            "line ignored");
  EXPECT_EQ(fault("  uses os tcp_server *:80"),
            "f.conf:1:3: unknown statement 'uses'; known: application-id, use, log; nearest: use; "
            "line ignored");
  EXPECT_EQ(fault("use os tcp_server *"),
            "f.conf:1:20: expected ':' and ports, found the end of the line; line ignored");
  EXPECT_EQ(fault("use os tcp_server *:70000"),
            "f.conf:1:21: expected a port, 0 to 65535, found '70000'; line ignored");
  EXPECT_EQ(fault("use os tcp_server *:90-80"),
            "f.conf:1:23: ports 90-80 run backwards; line ignored");
  EXPECT_EQ(fault("use os tcp_server 10.0.0.0/33:80"),
            "f.conf:1:28: expected a prefix length, 0 to 32, found '33:80'; line ignored");
  EXPECT_EQ(fault("use os tcp_server 10.0.0:80"),
            "f.conf:1:19: expected an address: *, 10.0.0.0/8 or [2001:db8::]/32, found "
            "'10.0.0:80'; line ignored");
  EXPECT_EQ(fault("use os tcp_server 2001:db8::1:80"),
            "f.conf:1:19: expected an address: *, 10.0.0.0/8 or [2001:db8::]/32, found "
            "'2001:db8::1:80'; line ignored");
  EXPECT_EQ(fault("use os tcp_server [10.0.0.1]:80"),
            "f.conf:1:19: expected an address: *, 10.0.0.0/8 or [2001:db8::]/32, found "
            "'[10.0.0.1]:80'; line ignored");
  EXPECT_EQ(fault("use os tcp_server [::1:80"),
            "f.conf:1:26: expected ']', found the end of the line; line ignored");
  EXPECT_EQ(fault("use os tcp_server *:80 x"),
            "f.conf:1:24: expected the end of the line, found 'x'; line ignored");
  EXPECT_EQ(fault("use os"),
            "f.conf:1:7: expected a role (tcp_server, tcp_client, ...), found the end of the line; "
            "line ignored");
  EXPECT_EQ(fault("use # os"),
            "f.conf:1:5: expected a transport (vireo, vma, os or *), found the end of the line; "
            "line ignored");
  EXPECT_EQ(fault("log min-level 10"),
            "f.conf:1:15: expected a level, 1 to 9, found '10'; line ignored");
  EXPECT_EQ(
      fault("log destination printer"),
      "f.conf:1:17: unknown log destination 'printer'; known: stderr, syslog, file; line ignored");
  EXPECT_EQ(fault("use os tcp_client [::ffff:10.0.0.0]/95:*"),
            "f.conf:1:19: a v4-mapped address needs a prefix of at least 96; line ignored");
}

TEST(Rules, TheOtherLinesApply) {
  const auto p =
      parse("use os tcp_server *:1\nbogus\nuse os tcp_server *:x\nuse os tcp_server *:2\n");
  EXPECT_EQ(p.diagnostics.size(), 2U);
  EXPECT_EQ(p.server(at("0.0.0.0", 1)), kKernel);
  EXPECT_EQ(p.server(at("0.0.0.0", 2)), kKernel);
}

TEST(Rules, LinesUnderABrokenApplicationIdAreForNobody) {
  const auto p =
      parse("application-id a *\nuse os tcp_server *:1\napplication-id b\nuse os tcp_server *:2\n");
  ASSERT_EQ(p.diagnostics.size(), 1U);
  EXPECT_EQ(p.diagnostics[0].text,
            "f.conf:3:17: expected an id or *, found the end of the line; the use lines below it "
            "apply to no program");
  EXPECT_EQ(p.server(at("0.0.0.0", 1), "a"), kKernel);
  EXPECT_EQ(p.server(at("0.0.0.0", 2), "a"), kVireo);
  EXPECT_EQ(p.server(at("0.0.0.0", 2), "b"), kVireo);
  EXPECT_EQ(p.rules.size(), 1U);
}

TEST(Rules, ASecondAddressOfAServerIsIgnoredAloud) {
  const auto p = parse("use os tcp_server *:1:10.0.0.1:2\n");
  ASSERT_EQ(p.diagnostics.size(), 1U);
  EXPECT_EQ(p.diagnostics[0].severity, Severity::kNote);
  EXPECT_EQ(p.server(at("0.0.0.0", 1)), kKernel);
}

TEST(Rules, TheSampleFileIsWhatAMissingOneStandsFor) {
  Diagnostics d;
  for (const Rules& r : {Rules::load(VIREO_SAMPLE_RULES, true, d),
                         Rules::load("/nonexistent/libvma.conf", false, d), Rules::built_in()}) {
    EXPECT_EQ(r.size(), 1U);
    EXPECT_EQ(r.lookup("p", "i", Role::kUdpConnect, {}, at("8.8.8.8", 53)), kKernel);
    EXPECT_EQ(r.lookup("p", "i", Role::kUdpConnect, {}, at("2001:db8::1", 53)), kKernel);
    EXPECT_EQ(r.lookup("p", "i", Role::kUdpConnect, {}, at("8.8.8.8", 54)), kVireo);
    EXPECT_EQ(r.lookup("p", "i", Role::kTcpClient, {}, at("8.8.8.8", 53)), kVireo);
  }
  EXPECT_TRUE(d.empty());
}

TEST(Rules, AnAddedLineComesFirstForEveryProgram) {
  const Parsed p = good(
      "application-id prog id\nuse vma tcp_server *:80\napplication-id other id\nuse vma "
      "tcp_server "
      "*:80\n");
  Diagnostics d;
  const auto more = p.rules.with_first("use os tcp_server *:80", d);
  ASSERT_TRUE(more && d.empty());
  for (const char* program : {"prog", "other", "third"}) {
    EXPECT_EQ(more->lookup(program, "id", Role::kTcpServer, at("10.0.0.1", 80), {}), kKernel);
    EXPECT_EQ(more->lookup(program, "id", Role::kTcpServer, at("10.0.0.1", 81), {}), kVireo);
  }
  EXPECT_EQ(p.server(at("10.0.0.1", 80)), kVireo);
  EXPECT_FALSE(more->with_first("use os nobody *:80", d));
  EXPECT_EQ(d.size(), 1U);
  EXPECT_FALSE(more->with_first("# nothing", d));
}

TEST(Rules, AFileThatCannotBeReadIsOneLine) {
  Diagnostics d;
  Rules::load("/nonexistent/my.conf", true, d);
  ASSERT_EQ(d.size(), 1U);
  EXPECT_EQ(d[0].text,
            "/nonexistent/my.conf: cannot read the rules file: No such file or directory; no rule "
            "applies");
  Rules::load("/tmp", false, d);
  ASSERT_EQ(d.size(), 2U);
  EXPECT_EQ(d[1].text, "/tmp: cannot read the rules file: Is a directory; no rule applies");
}

TEST(Rules, AHugeFileIsRefused) {
  char name[] = "/tmp/vireo-rules-XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  close(fd);
  std::ofstream(name) << std::string((1 << 20) + 1, '#');
  Diagnostics d;
  Rules::load(name, true, d);
  ASSERT_EQ(d.size(), 1U);
  EXPECT_NE(d[0].text.find("File too large"), std::string::npos);
  std::filesystem::remove(name);
}

}  // namespace
}  // namespace vireo
