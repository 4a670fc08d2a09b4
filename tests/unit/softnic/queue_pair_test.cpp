// Queue pairs of softnic: what is carried, in which order it ends, and which broken rules it names.
#include <arpa/inet.h>

#include <cstdlib>
#include <cstring>

#include "end.h"

namespace softnic_test {
namespace {

class Pairs : public ::testing::Test {
 protected:
  void SetUp() override { b.take_all(); }
  void send(uint64_t id, size_t payload = 100, unsigned flags = IBV_SEND_SIGNALED) {
    const auto f = udp_frame(7000, payload);
    std::memcpy(a.slot(id), f.data(), f.size());
    ASSERT_EQ(a.post_send(id, a.segment(id, static_cast<uint32_t>(f.size())), flags), 0);
  }
  End a{0}, b{1};
};

using PairsDeath = Pairs;

TEST_F(Pairs, CarryFramesAndFillInChecksumsWhenAsked) {
  b.post_receive(1, b.segment(1, End::kSlot));
  b.post_receive(2, b.segment(2, End::kSlot));
  send(1);  // its checksums are zero: IPv4's is wrong
  send(2, 100, IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM);
  const auto got = b.poll(b.received);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].wr_id, 1U);
  EXPECT_EQ(got[0].byte_len, 142U);
  EXPECT_EQ(got[0].wc_flags & IBV_WC_IP_CSUM_OK, 0U);
  EXPECT_NE(got[1].wc_flags & IBV_WC_IP_CSUM_OK, 0U);
  EXPECT_EQ(std::memcmp(b.slot(1), a.slot(1), 142), 0);
  EXPECT_EQ(a.poll(a.sent).size(), 2U);
}

TEST_F(Pairs, ErrorStateFlushesEveryReceiveInOrderAndLaterSends) {
  for (uint64_t i = 0; i < 5; ++i) b.post_receive(i, b.segment(i, End::kSlot));
  ASSERT_EQ(b.move(IBV_QPS_ERR), 0);
  const auto got = b.poll(b.received);
  ASSERT_EQ(got.size(), 5U);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(got[i].wr_id, i);
    EXPECT_EQ(got[i].status, IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_EQ(b.post_send(9, b.segment(9, 64), 0), 0);
  const auto flushed = b.poll(b.sent);
  ASSERT_EQ(flushed.size(), 1U) << "an error is told of unsignaled sends too";
  EXPECT_EQ(flushed[0].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Pairs, StatesGoOnlyTheirWay) {
  EXPECT_EQ(a.move(IBV_QPS_RTR), EINVAL);
  EXPECT_EQ(a.move(IBV_QPS_RESET), 0);
  EXPECT_EQ(a.move(IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(a.move(IBV_QPS_INIT), 0);
  EXPECT_EQ(a.move(IBV_QPS_RTS), EINVAL);
}

TEST_F(Pairs, AnArmedQueueTellsOnceAndAtOnceIfWorkWaits) {
  ibv_cq* cq;
  void* cookie;
  ASSERT_EQ(ibv_req_notify_cq(b.received, 0), 0);
  EXPECT_EQ(ibv_get_cq_event(b.channel, &cq, &cookie), -1);
  EXPECT_EQ(errno, EAGAIN);
  for (uint64_t i = 0; i < 3; ++i) b.post_receive(i, b.segment(i, End::kSlot));
  send(1);
  send(2);
  ASSERT_EQ(ibv_get_cq_event(b.channel, &cq, &cookie), 0);
  EXPECT_EQ(cq, b.received);
  EXPECT_EQ(ibv_get_cq_event(b.channel, &cq, &cookie), -1) << "one event per request";
  ASSERT_EQ(ibv_req_notify_cq(b.received, 0), 0);
  ASSERT_EQ(ibv_get_cq_event(b.channel, &cq, &cookie), 0) << "completions wait";
  ibv_ack_cq_events(b.received, 2);
}

TEST(Segmentation, CutsAPayloadAndKeepsFlagsForTheLast) {
  End a(0, {.tso_header = 128}), b(1);
  b.take_all();
  for (uint64_t i = 0; i < 3; ++i) b.post_receive(i, b.segment(i, End::kSlot));
  auto header = udp_frame(7000, 12);  // 54 bytes: as much as a TCP header takes
  header[23] = std::byte(6);
  header[46] = std::byte(0x50);      // data offset
  header[47] = std::byte(0x18 | 1);  // FIN PSH ACK
  std::memset(&header[38], 0, 8);
  header[41] = std::byte(100);  // sequence number
  for (size_t i = 0; i < 2500; ++i) a.slot(0)[i] = std::byte(i * 7 & 255);
  ibv_sge s = a.segment(0, 2500);
  ibv_send_wr wr{};
  wr.sg_list = &s;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_TSO;
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
  wr.tso.hdr = header.data();
  wr.tso.hdr_sz = 54;
  wr.tso.mss = 1000;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.pair, &wr, &bad), 0);
  const auto got = b.poll(b.received);
  ASSERT_EQ(got.size(), 3U);
  for (uint64_t i = 0; i < 3; ++i) {
    const size_t bytes = i < 2 ? 1000 : 500;
    EXPECT_EQ(got[i].byte_len, 54 + bytes);
    EXPECT_NE(got[i].wc_flags & IBV_WC_IP_CSUM_OK, 0U);
    uint32_t seq;
    std::memcpy(&seq, b.slot(i) + 38, 4);
    EXPECT_EQ(ntohl(seq), 100 + 1000 * i);
    EXPECT_EQ(b.slot(i)[47], std::byte(i < 2 ? 0x10 : 0x19));
    EXPECT_EQ(std::memcmp(b.slot(i) + 54, a.slot(0) + 1000 * i, bytes), 0);
  }
  const auto done = a.poll(a.sent);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].opcode, IBV_WC_TSO);
}

TEST_F(PairsDeath, MemoryRulesAreNamed) {
  ibv_sge s = b.segment(1, End::kSlot);
  s.lkey += 1;
  EXPECT_DEATH(b.post_receive(1, s), "lkey 0x.* is no memory region");
  EXPECT_DEATH(b.post_receive(1, b.segment(63, End::kSlot + 1)), "outside region");
  s = a.segment(1, 64);
  s.addr -= 2 * End::kSlot;
  EXPECT_DEATH(a.post_send(1, s), "outside region");
  ASSERT_EQ(b.post_receive(1, b.segment(1, 512)), 0);
  EXPECT_DEATH(b.post_receive(2, b.segment(1, 512)), "posted already");
}

TEST_F(PairsDeath, RingRulesAreNamed) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(b.post_receive(i, b.segment(i, 100)), 0);
  EXPECT_DEATH(b.post_receive(8, b.segment(8, 100)), "receive queue of 8 overflows");
  EXPECT_DEATH(send(1), "142 bytes comes to a request with room for 100");
  for (uint64_t i = 0; i < 8; ++i) send(1, 40, 0);
  EXPECT_DEATH(send(1, 40, 0), "send queue of 8 overflows");
}

TEST_F(Pairs, LenientAnswersAsHardware) {
  setenv("SOFTNIC_LENIENT", "1", 1);
  ibv_sge s = a.segment(1, 64);
  s.lkey += 1;
  EXPECT_EQ(a.post_send(3, s, 0), 0);
  unsetenv("SOFTNIC_LENIENT");
  const auto got = a.poll(a.sent);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].status, IBV_WC_LOC_PROT_ERR);
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(a.pair, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

}  // namespace
}  // namespace softnic_test
