// iptables, with x_tables beneath (legacy) and with nf_tables: the same rules, the same answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/filter/rules.h"

namespace vireo::filter {
namespace {

class Iptables : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { enter_new_namespace(); }
  static void add(const std::string& rule) { run(fmt::format("iptables-{} {}", GetParam(), rule)); }
  static void add6(const std::string& rule) {
    run(fmt::format("ip6tables-{} {}", GetParam(), rule));
  }
  static void refuse_rest() {
    add("-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT");
    add("-P INPUT DROP");
  }
};

TEST_P(Iptables, NamesTheRule) {
  add("-A INPUT -p udp --dport 90 -j DROP");
  add("-A INPUT -p tcp --dport 80:82 -j REJECT");
  const Ruleset r = read_rules();
  const bool is_legacy = std::string(GetParam()) == "legacy";
  const std::string said = judged(r, tcp_listener(81));
  if (is_legacy)
    EXPECT_EQ(said, "iptables-legacy filter INPUT, rule 2");
  else
    EXPECT_TRUE(said.starts_with("ip filter INPUT, handle ")) << said;
  EXPECT_EQ(judged(r, tcp_listener(83)), "");
  EXPECT_EQ(judged(r, tcp_listener(90)), "");
  EXPECT_NE(judged(r, udp_bound(90)), "");
  EXPECT_EQ(judged(r, tcp_listener(81, "fd00::1")), "");
}

TEST_P(Iptables, PolicyDrop) {
  add("-A INPUT -i lo -j ACCEPT");
  add("-A INPUT -p tcp -m multiport --dports 22,80:90 -m conntrack --ctstate NEW -j ACCEPT");
  add("-A INPUT -p tcp -m tcp --dport 100 --syn -m comment --comment web -j ACCEPT");
  add("-A INPUT -p tcp --dport 101 -s 10.9.0.0/16 -j ACCEPT");
  add("-A INPUT -p tcp --dport 102 -i eth+ -j ACCEPT");
  add("-A INPUT -p tcp --dport 103 ! -i eth0 -j ACCEPT");
  add("-A INPUT -p tcp --dport 104 -m limit --limit 5/min -j ACCEPT");
  refuse_rest();
  const Ruleset r = read_rules();
  for (const uint16_t open : std::initializer_list<uint16_t>{22, 85, 100, 102})
    EXPECT_EQ(judged(r, tcp_listener(open)), "") << open;
  for (const uint16_t shut : std::initializer_list<uint16_t>{23, 91, 101, 103, 104})
    EXPECT_NE(judged(r, tcp_listener(shut)), "") << shut;
  EXPECT_EQ(judged(r, tcp_client("10.9.0.1", 7)), "");
  EXPECT_EQ(judged(r, tcp_listener(23, "fd00::1")), "");
  EXPECT_EQ(judged(r, tcp_listener(23)).find("policy") != std::string::npos, true);
}

TEST_P(Iptables, ChainsOfTheUser) {
  add("-N allowed");
  add("-N web");
  add("-A allowed -p tcp --dport 80 -j web");
  add("-A allowed -p tcp --dport 81 -g web");
  add("-A allowed -p tcp --dport 82 -j RETURN");
  add("-A allowed -p tcp --dport 83 -j LOG");
  add("-A allowed -p tcp --dport 82:83 -j ACCEPT");
  add("-A web -d 10.1.0.1 -j ACCEPT");
  add("-A INPUT -j allowed");
  refuse_rest();
  const Ruleset r = read_rules();
  EXPECT_EQ(judged(r, tcp_listener(80, "10.1.0.1")), "");
  EXPECT_EQ(judged(r, tcp_listener(81, "10.1.0.1")), "");
  EXPECT_NE(judged(r, tcp_listener(80, "10.1.0.2")), "");
  EXPECT_NE(judged(r, tcp_listener(82, "10.1.0.1")), "");
  EXPECT_EQ(judged(r, tcp_listener(83)), "");
}

TEST_P(Iptables, ReturnFromABuiltInChainIsThePolicy) {
  add("-A INPUT -p tcp --dport 80 -j RETURN");
  add("-A INPUT -p tcp --dport 81 -j ACCEPT");
  refuse_rest();
  EXPECT_NE(judged(tcp_listener(80)), "");
  EXPECT_EQ(judged(tcp_listener(81)), "");
}

TEST_P(Iptables, AddressesThatAreTranslated) {
  add("-t nat -N DOCKER");
  add("-t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER");
  add("-t nat -A DOCKER ! -i docker0 -p tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80");
  add("-t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE");
  add("-P FORWARD DROP");
  const Ruleset r = read_rules();
  EXPECT_NE(judged(r, tcp_listener(8080)), "");
  EXPECT_EQ(judged(r, tcp_listener(80)), "");
  EXPECT_EQ(judged(r, tcp_client("10.2.0.2", 8080)), "");
}

TEST_P(Iptables, WhatLeaves) {
  add("-A OUTPUT -p tcp --dport 25 -j REJECT");
  const Ruleset r = read_rules();
  EXPECT_NE(judged(r, tcp_client("10.9.0.1", 25)), "");
  EXPECT_EQ(judged(r, tcp_client("10.9.0.1", 26)), "");
  EXPECT_EQ(judged(r, tcp_listener(25)), "");
}

TEST_P(Iptables, BothFamilies) {
  add6("-A INPUT -p tcp --dport 80 -j DROP");
  add6("-A INPUT -d fd00::/64 -p udp --dport 81 -j DROP");
  const Ruleset r = read_rules();
  EXPECT_NE(judged(r, tcp_listener(80, "fd00::1")), "");
  EXPECT_EQ(judged(r, tcp_listener(80)), "");
  EXPECT_NE(judged(r, udp_bound(81, "fd00::1")), "");
  EXPECT_EQ(judged(r, udp_bound(81, "fd01::1")), "");
}

INSTANTIATE_TEST_SUITE_P(All, Iptables, ::testing::Values("legacy", "nft"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace vireo::filter
