// nftables as nft(8) makes them, read from the kernel.
#include <gtest/gtest.h>

#include "tests/unit/filter/rules.h"

namespace vireo::filter {
namespace {

class Nft : public ::testing::Test {
 protected:
  void SetUp() override { enter_new_namespace(); }

  /// A chain of hook input with these rules.
  static void set_input(const std::string& rules, const char* policy = "drop") {
    set_nft(std::string("table inet f {\n chain in { type filter hook input priority 0; policy ") +
            policy + ";\n" + rules + "\n }\n}");
  }
};

#define EXPECT_PASSES(...) EXPECT_EQ(judged(__VA_ARGS__), "")
#define EXPECT_REFUSED(...) EXPECT_NE(judged(__VA_ARGS__), "")

TEST_F(Nft, NoRulesAtAll) {
  EXPECT_TRUE(read_rules().is_empty());
  EXPECT_EQ(read_rules().unreadable, 0);
  EXPECT_PASSES(tcp_listener(80));
}

TEST_F(Nft, ChainsThatConcernNobodyHere) {
  set_nft(
      "table ip nat {\n chain pre { type nat hook prerouting priority -100;\n"
      "  fib daddr type local jump docker\n }\n"
      " chain docker { iifname != \"docker0\" tcp dport 8080 dnat to 172.17.0.2:80\n }\n"
      " chain post { type nat hook postrouting priority 100;\n"
      "  ip saddr 172.17.0.0/16 oifname != \"docker0\" masquerade\n }\n}\n"
      "table ip filter {\n chain forwarded { type filter hook forward priority 0; policy drop;\n "
      "}\n}\n"
      "table arp a { chain in { type filter hook input priority 0; policy drop;\n}\n}");
  const Ruleset r = read_rules();
  EXPECT_PASSES(r, tcp_listener(80));
  EXPECT_PASSES(r, udp_bound(8080, "10.1.0.1"));
  EXPECT_PASSES(r, tcp_client("10.2.0.2", 443));
  EXPECT_EQ(judged(r, tcp_listener(8080)).substr(0, 13), "ip nat docker");
  EXPECT_PASSES(r, tcp_listener(8080, "fd00::1"));
}

TEST_F(Nft, PolicyDropWithPortsThatAreOpen) {
  set_input(
      "ct state established,related accept\nct state invalid drop\niif lo accept\n"
      "tcp dport { 22, 80-90 } ct state new accept\nudp dport 53 accept\n"
      "ip saddr 10.9.0.0/16 tcp dport 5432 accept");
  const Ruleset r = read_rules();
  EXPECT_PASSES(r, tcp_listener(22));
  EXPECT_PASSES(r, tcp_listener(85));
  EXPECT_PASSES(r, tcp_listener(90, "fd00::1"));
  EXPECT_EQ(judged(r, tcp_listener(91)), "inet f in, policy");
  EXPECT_REFUSED(r, tcp_listener(53));
  EXPECT_PASSES(r, udp_bound(53));
  EXPECT_REFUSED(r, udp_bound(22));
  EXPECT_REFUSED(r, tcp_listener(5432)) << "from some, not from all";
  EXPECT_PASSES(r, tcp_client("10.9.0.1", 99));
  EXPECT_PASSES(r, established("10.9.0.1", 99));
}

TEST_F(Nft, WithoutConntrackAnswersMustPassToo) {
  set_input("tcp dport 80 accept");
  EXPECT_PASSES(tcp_listener(80));
  EXPECT_REFUSED(tcp_client("10.9.0.1", 80));
  set_input("tcp flags & (syn|ack) == syn drop", "accept");
  EXPECT_PASSES(tcp_client("10.9.0.1", 80));
  EXPECT_REFUSED(tcp_listener(80));
}

TEST_F(Nft, FlagsThatMakeNoSense) {
  set_input(
      "tcp flags & (fin|syn) == fin|syn drop\ntcp flags & (syn|rst) == syn|rst drop\n"
      "tcp flags & (fin|syn|rst|psh|ack|urg) == 0x0 drop\n"
      "tcp flags & (fin|syn|rst|ack) != syn ct state new drop",
      "accept");
  EXPECT_PASSES(tcp_listener(80));
  EXPECT_PASSES(tcp_client("10.9.0.1", 80));
}

TEST_F(Nft, RejectOneLetPassTheRest) {
  set_input("tcp dport 9000 counter log prefix \"no \" reject with tcp reset", "accept");
  EXPECT_EQ(judged(tcp_listener(9000)).substr(0, 17), "inet f in, handle");
  EXPECT_PASSES(tcp_listener(9001));
}

TEST_F(Nft, Limits) {
  set_input("tcp dport 80 limit rate 3/second accept");
  EXPECT_REFUSED(tcp_listener(80));
  set_input("tcp dport 80 limit rate over 3/second drop", "accept");
  EXPECT_REFUSED(tcp_listener(80));
  EXPECT_PASSES(tcp_listener(81));
}

TEST_F(Nft, ByInterface) {
  set_input(
      "iifname \"eth0\" tcp dport 80 accept\niif 11 tcp dport 81 accept\n"
      "iifname \"eth*\" tcp dport 82 accept\niifname { \"eth1\", \"wg0\" } tcp dport 83 accept\n"
      "iifname . tcp dport { \"eth0\" . 84, \"eth1\" . 85 } accept");
  const Ruleset r = read_rules();
  EXPECT_PASSES(r, tcp_listener(80));
  EXPECT_REFUSED(r, tcp_listener(81));
  EXPECT_PASSES(r, tcp_listener(82));
  EXPECT_REFUSED(r, tcp_listener(83));
  EXPECT_PASSES(r, tcp_listener(84));
  EXPECT_REFUSED(r, tcp_listener(85));
  Flow anywhere = tcp_listener(80);
  anywhere.interface = {};
  EXPECT_REFUSED(r, anywhere);
}

TEST_F(Nft, ByAddress) {
  set_input("ip daddr 10.1.0.1 tcp dport 80 accept\nip6 daddr fd00::/64 tcp dport 80 accept");
  EXPECT_PASSES(tcp_listener(80, "10.1.0.1"));
  EXPECT_REFUSED(tcp_listener(80, "10.1.0.2"));
  EXPECT_REFUSED(tcp_listener(80));
  EXPECT_PASSES(tcp_listener(80, "fd00::1"));
  EXPECT_REFUSED(tcp_listener(80, "fd00:1::1"));
}

TEST_F(Nft, SetsAndMaps) {
  set_nft(
      "table inet f {\n set open { type inet_service; flags interval; elements = { 80, 1000-1999, "
      "60000-65535 } }\n set banned { type ipv4_addr; }\n"
      " set pairs { type ipv4_addr . inet_service; flags interval; elements = { 10.1.0.0/24 . "
      "3000-3010 } }\n map verdicts { type inet_service : verdict; elements = { 70 : accept, 71 : "
      "drop, 72 : jump other } }\n"
      " chain other { accept\n }\n"
      " chain in { type filter hook input priority 0; policy drop;\n ip saddr @banned drop\n"
      "  ct state vmap { established : accept, related : accept, invalid : drop }\n"
      "  tcp dport @open accept\n  ip daddr . tcp dport @pairs accept\n"
      "  tcp dport vmap @verdicts\n }\n}");
  const Ruleset r = read_rules();
  EXPECT_PASSES(r, tcp_listener(80));
  EXPECT_PASSES(r, tcp_listener(1500));
  EXPECT_PASSES(r, tcp_listener(65535));
  EXPECT_REFUSED(r, tcp_listener(2000));
  EXPECT_PASSES(r, tcp_listener(3005, "10.1.0.1"));
  EXPECT_REFUSED(r, tcp_listener(3011, "10.1.0.1"));
  EXPECT_REFUSED(r, tcp_listener(3005, "10.1.1.1"));
  EXPECT_PASSES(r, tcp_listener(70));
  EXPECT_REFUSED(r, tcp_listener(71));
  EXPECT_PASSES(r, tcp_listener(72));
  run("nft add element inet f banned '{ 10.5.5.5 }'");
  EXPECT_REFUSED(tcp_listener(80));
  EXPECT_PASSES(tcp_client("10.6.6.6", 80));
  EXPECT_REFUSED(tcp_client("10.5.5.5", 80));
}

TEST_F(Nft, SetsThatPacketsFill) {
  set_nft(
      "table inet f {\n set seen { type ipv4_addr; flags dynamic,timeout; timeout 1m; }\n"
      " chain in { type filter hook input priority 0;\n"
      "  tcp dport 80 add @seen { ip saddr limit rate over 5/second } drop\n"
      "  tcp dport 81 ip saddr @seen drop\n }\n}");
  EXPECT_REFUSED(tcp_listener(80));
  EXPECT_REFUSED(tcp_listener(81));
  EXPECT_PASSES(tcp_listener(82));
}

TEST_F(Nft, OtherHooks) {
  set_nft(
      "table inet f {\n chain raw { type filter hook prerouting priority -300;\n"
      "  tcp dport 80 drop\n }\n chain out { type filter hook output priority 0;\n"
      "  tcp dport 25 reject\n  tcp sport 81 drop\n }\n"
      " chain redirected { type nat hook prerouting priority -100;\n"
      "  tcp dport 82 redirect to :8082\n }\n}\n"
      "table netdev d { chain i { type filter hook ingress device \"eth0\" priority 0;\n"
      "  tcp dport 83 drop\n }\n}");
  const Ruleset r = read_rules();
  EXPECT_REFUSED(r, tcp_listener(80));
  EXPECT_REFUSED(r, tcp_listener(81)) << "its answers";
  EXPECT_REFUSED(r, tcp_listener(82));
  EXPECT_REFUSED(r, tcp_listener(83));
  Flow elsewhere = tcp_listener(83);
  elsewhere.interface = {IfIndex(11), "eth1"};
  EXPECT_PASSES(r, elsewhere);
  EXPECT_PASSES(r, tcp_listener(84));
  EXPECT_REFUSED(r, tcp_client("10.9.0.1", 25));
  EXPECT_PASSES(r, tcp_client("10.9.0.1", 26));
}

TEST_F(Nft, DormantTablesAndMarks) {
  set_nft(
      "table inet f { flags dormant; chain in { type filter hook input priority 0; policy drop; "
      "\n}\n}");
  EXPECT_PASSES(tcp_listener(80));
  set_input("meta mark & 0x8000 == 0x8000 drop", "accept");
  EXPECT_PASSES(tcp_listener(80)) << "nobody sets a mark";
  set_input("meta mark & 0x8000 == 0x8000 drop\nip saddr 10.0.0.1 meta mark set 0x8000", "accept");
  EXPECT_REFUSED(tcp_listener(80));
}

TEST_F(Nft, NotEqualAndRanges) {
  set_input("tcp dport != 80 drop", "accept");
  EXPECT_PASSES(tcp_listener(80));
  EXPECT_REFUSED(tcp_listener(81));
  set_input("tcp dport != 80-90 drop\nmeta nfproto ipv6 drop\nmeta l4proto { udp, icmp } drop",
            "accept");
  EXPECT_PASSES(tcp_listener(85));
  EXPECT_REFUSED(tcp_listener(91));
  EXPECT_REFUSED(tcp_listener(85, "fd00::1"));
  EXPECT_REFUSED(udp_bound(85));
}

TEST_F(Nft, WhatMayHaveAForgedSource) {
  set_input("fib saddr . iif oif missing drop", "accept");
  EXPECT_REFUSED(tcp_listener(80));
}

}  // namespace
}  // namespace vireo::filter
