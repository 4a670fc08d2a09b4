#include "core/stats_json.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/layout.h"

namespace vireo {
namespace {

TEST(StatsJson, WritesTheWholeDocument) {
  const auto live = test::made_up_process();
  live->sockets[2].generation.store(0);
  live->sockets[3].generation.store(0);
  const ProcessReading p = read_stats(*live);
  EXPECT_EQ(
      processes_json({&p, 1}),
      R"({"processes":[{"pid":4711,"name":"server",)"
      R"("ports":[{"name":"eth1","ifindex":7,"mode":"native copy","queues":2}],)"
      R"("group":{"members":3,"slot":1,"frames":1000,"own":600,"queued":300,"unused":99,"left":1},)"
      R"("engine":{"rx_packets":1001,"rx_bytes":0,"tx_packets":2000,"tx_bytes":0,)"
      R"("rx_unknown_flow":0,"rx_bad_checksum":0,"rx_malformed":0,"tx_ring_full":0,"pool_empty":0,)"
      R"("rx_lost_ring_full":0,"rx_lost_no_frame":0,"rx_starved":0,"rx_refused":0,"tx_refused":0,)"
      R"("queue_restarts":0,"pool_free":0,"pool_size":0,"polls":0,"empty_polls":0,"helper_polls":0,"sleeps":0,)"
      R"("active_opens":0,"accepted":0,"udp_flows":0,"time_waits":0,"corks":0,"shared_doorbells":0,"leased_ports":0,"resets_sent":0,)"
      R"("retransmits":0,"listen_overflows":0,"syn_cookies_sent":0,"syn_cookies_received":0,)"
      R"("syn_cookies_failed":0,"reassembled":0,"reassembly_fails":0,"fast_opens":0,"fast_opens_old_key":0,"fast_opens_refused":0,)"
      R"("ports_shared":0,"given_to_kernel":0,"unaccepted_given":0},"rings":[],)"
      R"("decisions":{"carried":3,"kernel":1,"refused":{"loopback":1}},"sockets":[)"
      R"({"fd":5,"proto":"udp","family":6,"state":"","closed":false,"carried":false,)"
      R"("ring":0,"reason":"loopback","text":"the other end is this host: the kernel's loopback serves it",)"
      R"("detail":"bound to loopback","errno":13,"local":"[::1]:53","remote":"",)"
      R"("rx_packets":0,"rx_bytes":0,"tx_packets":0,"tx_bytes":0,"rx_drops":0,"retransmits":0,)"
      R"("errors":0,"os_rx_packets":6,"os_rx_bytes":0,"os_tx_packets":0,"os_tx_bytes":0},)"
      R"({"fd":9,"proto":"tcp","family":4,"state":"established","closed":false,"carried":true,)"
      R"("ring":0,"reason":"","text":"","detail":"","errno":0,"local":"10.0.0.2:80",)"
      R"("remote":"10.0.0.1:40000","rx_packets":10,"rx_bytes":1234567,"tx_packets":0,)"
      R"("tx_bytes":0,"rx_drops":0,"retransmits":3,"errors":0,"os_rx_packets":0,"os_rx_bytes":0,)"
      R"("os_tx_packets":0,"os_tx_bytes":0}],)"
      R"("closed":{"carried":{"sockets":5,"rx_packets":500,"rx_bytes":0,"tx_packets":0,)"
      R"("tx_bytes":0,"rx_drops":0,"retransmits":0,"errors":0,"os_rx_packets":0,"os_rx_bytes":0,)"
      R"("os_tx_packets":0,"os_tx_bytes":0}}}]})");
}

TEST(StatsJson, SaysWhatEachRingCarried) {
  const auto live = test::made_up_process();
  live->engines[0].pool_size.set(64);
  live->engines[1].pool_size.set(32);
  live->sockets[0].ring = 1;
  live->sockets[2].ring = 255;  // of no ring that there may be
  const ProcessReading p = read_stats(*live);
  const std::string text = processes_json({&p, 1});
  EXPECT_NE(text.find(R"("rings":[{"rx_packets":1000,"rx_bytes":0,"tx_packets":2000,)"),
            std::string::npos);
  EXPECT_NE(text.find(R"(},{"rx_packets":1,"rx_bytes":0,"tx_packets":0,)"), std::string::npos);
  EXPECT_NE(text.find(R"("fd":9,"proto":"tcp","family":4,"state":"established","closed":false,)"
                      R"("carried":true,"ring":1,)"),
            std::string::npos);
  EXPECT_EQ(text.find(R"("ring":255)"), std::string::npos);
}

TEST(StatsJson, NothingIsAnEmptyList) { EXPECT_EQ(processes_json({}), R"({"processes":[]})"); }

TEST(StatsJson, EscapesWhatAProgramMayBeCalled) {
  EXPECT_EQ(json_string("a\"b\\c\n\x7f"), R"("a\"b\\c\u000a\u007f")");
  EXPECT_EQ(json_string("caf\xc3\xa9"), R"("caf\ufffd\ufffd")");
}

TEST(StatsJson, AddressesAsPeopleWriteThem) {
  EXPECT_EQ(endpoint_text({}, false), "");
  EXPECT_EQ(endpoint_text({IpAddr(), 80, 0}, false), "0.0.0.0:80");
  EXPECT_EQ(endpoint_text({IpAddr(), 80, 0}, true), "[::]:80");
  EXPECT_EQ(endpoint_text({IpAddr::any_v4(), 0, 0}, false), "");
  EXPECT_EQ(endpoint_text({*IpAddr::parse("fd00::1"), 9, 0}, true), "[fd00::1]:9");
}

}  // namespace
}  // namespace vireo
