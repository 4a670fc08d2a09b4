#include "tools/vireo-stat/view.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/layout.h"

namespace vireo {
namespace {

TEST(View, ShortNumbersAreAtMostSixCharacters) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(99'999), "99999");
  EXPECT_EQ(short_number(100'000), "100k");
  EXPECT_EQ(short_number(1'234'567), "1235k");
  EXPECT_EQ(short_number(99'999'499), "99999k");
  EXPECT_EQ(short_number(99'999'500), "100M");
  for (uint64_t n = 1; n != 0 && n < UINT64_MAX / 7; n *= 7) EXPECT_LE(short_number(n).size(), 6U);
  EXPECT_EQ(short_number(UINT64_MAX), "18447P");
}

TEST(View, ColumnsAlign) {
  EXPECT_EQ(columns({{">N", "NAME", "X"}, {"100", "a", "b"}, {"1", "longer", ""}}, " "),
            "   N  NAME    X\n"
            " 100  a       b\n"
            "   1  longer\n");
}

TEST(View, AProcess) {
  const auto live = test::made_up_process();
  EXPECT_EQ(
      process_view(read_stats(*live), nullptr, {}, {}),
      "server (pid 4711)\n"
      "  interfaces: eth1 (native copy, 2 queues)\n"
      "  packets: 1001 received, 2000 sent by Vireo\n"
      "  group: 3 processes, this is number 1; of 1000 frames 600 its own, 300 for receiving, 99 "
      "unused, 1 of the dead\n"
      "  carried\n"
      "    FD  PROTO  STATE        LOCAL        REMOTE          RX-PKT  RX-BYTE  TX-PKT  TX-BYTE  "
      "DROPS  RETRANS\n"
      "     3  tcp    listen       0.0.0.0:80   -                    0        0       0        0  "
      "    0        0\n"
      "     9  tcp    established  10.0.0.2:80  10.0.0.1:40000      10    1235k       0        0  "
      "    0        3\n"
      "  not carried\n"
      "    FD  PROTO  LOCAL     REMOTE  RX-CALLS  TX-CALLS  REASON    DETAIL\n"
      "     5  udp6   [::1]:53  -              6         0  loopback  bound to loopback: errno 13\n"
      "    loopback: the other end is this host: the kernel's loopback serves it\n"
      "  decisions: 3 carried, 1 left to the kernel: loopback 1\n");
}

TEST(View, TheRingsOfAProcessThatHasSeveral) {
  const auto live = test::made_up_process();
  live->engines[0].pool_size.set(64);
  const std::string one = process_view(read_stats(*live), nullptr, {}, {});
  EXPECT_EQ(one.find("rings"), std::string::npos);
  live->engines[1].pool_size.set(64);
  live->sockets[0].ring = 1;
  const std::string two = process_view(read_stats(*live), nullptr, {}, {});
  EXPECT_NE(two.find("  rings\n"
                     "    RING  SOCKETS  RX-PKT  TX-PKT\n"
                     "       0        1    1000    2000\n"
                     "       1        1       1       0\n"),
            std::string::npos)
      << two;
}

TEST(View, RatesBetweenTwoLooks) {
  const auto live = test::made_up_process();
  const ProcessReading before = read_stats(*live);
  live->engines[0].rx_packets.add(500);
  live->sockets[0].rx_packets.add(40);
  const std::string text = process_view(read_stats(*live), &before, Duration::ms(2000), {});
  EXPECT_NE(text.find("packets a second: 250 received, 0 sent"), text.npos) << text;
  EXPECT_NE(text.find("RX-PKT/s"), text.npos) << text;
  EXPECT_NE(text.find("10.0.0.1:40000        20"), text.npos) << text;
}

TEST(View, VerboseShowsClosedSocketsAndTheEngine) {
  const auto live = test::made_up_process();
  const ProcessReading p = read_stats(*live);
  const std::string plain = process_view(p, nullptr, {}, {});
  const std::string text = process_view(p, nullptr, {}, {.verbose = true});
  EXPECT_EQ(plain.find("10.0.0.9"), plain.npos);
  EXPECT_NE(text.find("10.0.0.9:50000"), text.npos) << text;
  EXPECT_NE(text.find("closed, in all"), text.npos) << text;
  EXPECT_NE(text.find("rx_unknown_flow"), text.npos) << text;
}

TEST(View, FramesLostBeforeVireoAreSaidWithTheRemedy) {
  const auto live = test::made_up_process();
  EXPECT_EQ(process_view(read_stats(*live), nullptr, {}, {}).find("lost"), std::string::npos);
  live->engines[0].rx_lost_ring_full.set(5);
  live->engines[0].rx_lost_no_frame.set(7);
  live->engines[0].rx_starved.set(9);
  const std::string text = process_view(read_stats(*live), nullptr, {}, {});
  EXPECT_NE(text.find("\n  lost: 12 frames came while the receive ring was full"), text.npos)
      << text;
  EXPECT_NE(text.find("VIREO_XDP_RING"), text.npos) << text;
  EXPECT_EQ(text.find("refused by"), text.npos) << text;
  live->engines[0].tx_refused.set(3);
  const std::string more = process_view(read_stats(*live), nullptr, {}, {});
  EXPECT_NE(more.find("refused by the device: 3 frames"), more.npos) << more;
  EXPECT_EQ(more.find("anew"), more.npos) << more;
  live->engines[0].queue_restarts.set(2);
  const std::string anew = process_view(read_stats(*live), nullptr, {}, {});
  EXPECT_NE(anew.find("begun anew after an error of the device: 2 times"), anew.npos) << anew;
}

TEST(View, ReasonsOverAllProcesses) {
  const auto live = test::made_up_process();
  const ProcessReading p = read_stats(*live);
  const ProcessReading two[] = {p, p};
  EXPECT_EQ(reasons_view(two),
            "COUNT  REASON    MEANING\n"
            "    6  carried   carried by Vireo\n"
            "    2  loopback  the other end is this host: the kernel's loopback serves it\n");
}

}  // namespace
}  // namespace vireo
