// The rings of mlx5dv_init_obj(3), driven by hand from the layouts of mlx5dv.h.
#include <poll.h>

#include "direct_end.h"

namespace softnic_test {
namespace {

class Direct : public testing::Test {
 protected:
  DirectEnd a{0}, b{1};
  std::vector<std::byte> frame_ = udp_frame(7000, 100);

  Direct() { b.take_all(); }
  std::span<const std::byte> header(size_t n = 42) const { return std::span(frame_).first(n); }
  /// The rest of the frame in slot 0 of a.
  ibv_sge body(size_t from = 42) {
    std::memcpy(a.slot(0), frame_.data() + from, frame_.size() - from);
    return a.segment(0, static_cast<uint32_t>(frame_.size() - from));
  }
  /// The frame with the checksums that the device fills in.
  static bool has_checksums(const std::byte* f) {
    return f[24] != std::byte(0) || f[25] != std::byte(0);
  }
};

TEST_F(Direct, AFrameGoesFromRingToRing) {
  b.receive(3);
  a.send(a.put(header(), body()));
  EXPECT_TRUE(a.sends.poll().empty()) << "nobody has looked at the doorbell";
  EXPECT_TRUE(pump());
  const auto sent = a.sends.poll();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].opcode, MLX5_CQE_REQ);
  EXPECT_EQ(sent[0].counter(), 0);
  EXPECT_EQ(be32toh(sent[0].cqe.sop_drop_qpn), uint32_t{MLX5_OPCODE_SEND} << 24 | a.pair->qp_num);
  const auto got = b.receives.poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].opcode, MLX5_CQE_RESP_SEND);
  EXPECT_EQ(got[0].bytes(), frame_.size());
  EXPECT_EQ(got[0].counter(), 0);
  EXPECT_EQ(got[0].cqe.hds_ip_ext, MLX5_CQE_L2_OK | MLX5_CQE_L3_OK | MLX5_CQE_L4_OK);
  EXPECT_EQ(got[0].cqe.l4_hdr_type_etc >> 2 & 3, MLX5_CQE_L3_HDR_TYPE_IPV4);
  EXPECT_EQ(got[0].cqe.sop_drop_qpn, 0U) << "no tag";
  EXPECT_NE(got[0].cqe.timestamp, 0U);
  EXPECT_EQ(std::memcmp(b.slot(3) + 42, frame_.data() + 42, 100), 0);
  EXPECT_TRUE(has_checksums(b.slot(3)));
  EXPECT_FALSE(pump());
}

TEST_F(Direct, OwnerBitsAndIndicesTurn) {
  for (unsigned i = 0; i < 300; ++i) {
    b.receive(i % 8);
    frame_[50] = static_cast<std::byte>(i);
    a.send(a.put(header(), body()));
    pump();
    ASSERT_EQ(a.sends.poll().size(), 1U) << i;
    const auto got = b.receives.poll();
    ASSERT_EQ(got.size(), 1U) << i;
    ASSERT_EQ(got[0].counter(), i);
    ASSERT_EQ(b.slot(i % 8)[50], static_cast<std::byte>(i));
  }
}

TEST_F(Direct, AWholeFrameMayBeInlineAndLieAroundTheRingsEnd) {
  for (unsigned i = 0; i < 40; ++i) {  // three blocks each, of a ring of a power of two
    b.receive(0);
    frame_[60] = static_cast<std::byte>(i);
    a.send(a.put(frame_, {}));
    pump();
    ASSERT_EQ(a.sends.poll().size(), 1U);
    ASSERT_EQ(b.receives.poll().size(), 1U);
    ASSERT_EQ(std::memcmp(b.slot(0) + 42, frame_.data() + 42, 100), 0) << i;
  }
}

TEST_F(Direct, OneDoorbellOneCompletionForManyAndNopsBetween) {
  for (size_t i = 0; i < 4; ++i) b.receive(i);
  a.put(header(), body(), 0);
  a.put_nop(5);
  a.put(header(), body(), 0);
  const uint16_t last = a.put(header(), body());
  EXPECT_EQ(last, 6) << "six octowords make two blocks, and five do";
  a.send(last);
  pump();
  const auto sent = a.sends.poll();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].counter(), last);
  EXPECT_EQ(b.receives.poll().size(), 3U);
  a.send(a.put_nop(1, MLX5_WQE_CTRL_CQ_UPDATE));
  pump();
  EXPECT_EQ(a.sends.poll().size(), 1U);
}

TEST_F(Direct, BlueFlameAlternatesItsBuffers) {
  for (int i = 0; i < 4; ++i) {
    b.receive(0);
    const uint16_t at = a.put(header(), body());
    a.write_record();
    std::memcpy(static_cast<std::byte*>(a.qp.bf.reg) + (i & 1) * static_cast<int>(a.qp.bf.size),
                a.block(at), 128);
    pump();
    ASSERT_EQ(b.receives.poll().size(), 1U);
    a.sends.poll();
  }
}

TEST_F(Direct, TheDriversPostedReceivesAndOursAreOneRing) {
  EXPECT_EQ(b.post_receive(77, b.segment(5, End::kSlot)), 0);
  b.posted = 1;
  b.receive(6);
  for (int i = 0; i < 2; ++i) a.send(a.put(header(), body()));
  // Two doorbells of which the device saw the last alone.
  pump();
  const auto got = b.receives.poll();
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[1].counter(), 1);
  EXPECT_EQ(std::memcmp(b.slot(5) + 42, b.slot(6) + 42, 100), 0);
}

TEST_F(Direct, AnArmedQueueTellsOnceAndAtOnceOfWhatIsThere) {
  const auto events = [&] {
    unsigned n = 0;
    ibv_cq* cq;
    void* context;
    while (ibv_get_cq_event(b.channel, &cq, &context) == 0) {
      ibv_ack_cq_events(cq, 1);
      ++n;
    }
    return n;
  };
  b.receive(0);
  b.receive(1);
  b.receives.arm(0);
  pump();
  EXPECT_EQ(events(), 0U);
  a.send(a.put(header(), body()));
  pump();
  EXPECT_EQ(events(), 1U);
  a.send(a.put(header(), body()));
  pump();
  EXPECT_EQ(events(), 0U) << "it was not armed again";
  b.receives.arm(0);
  pump();
  EXPECT_EQ(events(), 0U) << "the serial number is that of the event it got";
  b.receives.arm(1);
  pump();
  EXPECT_EQ(events(), 1U) << "completions lie behind the consumer index";
  EXPECT_EQ(b.receives.poll().size(), 2U);
}

TEST_F(Direct, TheTagOfTheRuleIsInTheCompletion) {
  struct {
    ibv_flow_attr attr{};
    ibv_flow_spec_tcp_udp udp{};
    ibv_flow_spec_action_tag tag{};
  } r;
  r.attr.size = sizeof r;
  r.attr.port = 1;
  r.attr.num_of_specs = 2;
  r.udp.type = IBV_FLOW_SPEC_UDP;
  r.udp.size = sizeof r.udp;
  r.udp.val.dst_port = htobe16(7000);
  r.udp.mask.dst_port = 0xffff;
  r.tag = {IBV_FLOW_SPEC_ACTION_TAG, sizeof r.tag, 0xabcdef};
  b.flows.push_back(ibv_create_flow(b.pair, &r.attr));
  ASSERT_NE(b.flows.back(), nullptr);
  b.receive(0);
  a.send(a.put(header(), body()));
  pump();
  const auto got = b.receives.poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(be32toh(got[0].cqe.sop_drop_qpn), 0xabcdefU);
}

TEST_F(Direct, ErrorsComeWithTheirSyndromesAndFlushTheRest) {
  b.receive(0);
  b.receive(1);
  softnic_fail_sends(a.device, 1, IBV_WC_LOC_PROT_ERR);
  a.put(header(), body(), 0);
  a.put(header(), body(), 0);
  a.send(a.put(header(), body()));
  pump();
  const auto sent = a.sends.poll();
  ASSERT_EQ(sent.size(), 3U) << "each element that did not go out, asked for or not";
  EXPECT_EQ(sent[0].opcode, MLX5_CQE_REQ_ERR);
  EXPECT_EQ(sent[0].syndrome(), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  EXPECT_EQ(sent[1].syndrome(), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  EXPECT_EQ(sent[2].syndrome(), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  EXPECT_EQ(sent[2].counter(), 4);
  softnic_remove(b.device);
  const auto got = b.receives.poll();
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[1].opcode, MLX5_CQE_RESP_ERR);
  EXPECT_EQ(got[1].syndrome(), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

TEST_F(Direct, TcpIsSegmented) {
  std::vector<std::byte> tcp = udp_frame(7000, 12);  // as long as a TCP header
  tcp[23] = std::byte(6);
  tcp[46] = std::byte(0x50);  // five words
  tcp[47] = std::byte(0x10);  // ACK
  for (size_t i = 0; i < 3; ++i) b.receive(i + 1);
  std::memset(a.slot(0), 7, 250);
  a.send(a.put(tcp, a.segment(0, 250), MLX5_WQE_CTRL_CQ_UPDATE, 100));
  pump();
  EXPECT_EQ(a.sends.poll().size(), 1U);
  const auto got = b.receives.poll();
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0].bytes(), 54U + 100);
  EXPECT_EQ(got[2].bytes(), 54U + 50);
  EXPECT_EQ(got[0].cqe.l4_hdr_type_etc >> 4 & 7, 4) << "TCP with ACK and data";
  EXPECT_EQ(b.slot(3)[41], std::byte(200)) << "the sequence number";
}

TEST_F(Direct, AskingAgainGivesTheSameRings) {
  mlx5dv_qp again{};
  mlx5dv_obj obj{};
  obj.qp = {a.pair, &again};
  EXPECT_EQ(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
  EXPECT_EQ(again.sq.buf, a.qp.sq.buf);
  EXPECT_EQ(again.dbrec, a.qp.dbrec);
  EXPECT_EQ(mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ), EOPNOTSUPP);
}

TEST(DirectDevice, SaysWhatItIs) {
  End e(0);
  EXPECT_TRUE(mlx5dv_is_supported(e.device));
  mlx5dv_context c{};
  c.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION | MLX5DV_CONTEXT_MASK_SWP;
  EXPECT_EQ(mlx5dv_query_device(e.context, &c), 0);
  EXPECT_EQ(c.comp_mask, uint64_t{MLX5DV_CONTEXT_MASK_CQE_COMPRESION}) << "what it does not have";
  EXPECT_TRUE((c.flags & MLX5DV_CONTEXT_FLAGS_CQE_V1) != 0);
  mlx5dv_clock_info clock;
  EXPECT_EQ(mlx5dv_get_clock_info(e.context, &clock), 0);
  EXPECT_EQ(mlx5dv_ts_to_ns(&clock, clock.last_cycles + 1000), clock.nsec + 4000);
  EXPECT_EQ(mlx5dv_devx_alloc_uar(e.context, 0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// ---- compression

class Compressed : public testing::Test {
 protected:
  DirectEnd a{0, {.sends = 32, .receives = 32}};
  DirectEnd b{1, {.sends = 32, .receives = 32, .compress = true}};
  Compressed() { b.take_all(); }
  void send(unsigned from, unsigned n) {
    for (unsigned i = from; i < from + n; ++i) {
      b.receive(i % 32);
      a.put(udp_frame(7000, i), {}, i + 1 == from + n ? MLX5_WQE_CTRL_CQ_UPDATE : 0);
    }
    a.write_record();
    for (uint16_t at = static_cast<uint16_t>(a.produced - 1);; --at)
      if (be32toh(reinterpret_cast<mlx5_wqe_ctrl_seg*>(a.block(at))->opmod_idx_opcode) >> 8 == at) {
        a.ring(at);
        break;
      }
    pump();
  }
};

TEST_F(Compressed, OneTitleAndTheLengthsInArraysOfEight) {
  send(0, 20);
  ASSERT_TRUE(b.receives.has());
  mlx5_cqe64* title = b.receives.next();
  EXPECT_EQ(mlx5dv_get_cqe_format(title), 3);
  EXPECT_EQ(be32toh(title->byte_cnt), 20U);
  EXPECT_EQ(be16toh(title->wqe_counter), 0);
  const auto* minis = reinterpret_cast<const uint32_t*>(title + 1);
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(be32toh(minis[2 * i + 1]), 42 + i);
  minis = reinterpret_cast<const uint32_t*>(title + 8);
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(be32toh(minis[2 * i + 1]), 50 + i);
  minis = reinterpret_cast<const uint32_t*>(title + 16);
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(be32toh(minis[2 * i + 1]), 58 + i);
  b.receives.consume(20);
  send(20, 1);
  const auto one = b.receives.poll();
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].format, 0) << "alone it is an ordinary one";
  EXPECT_EQ(one[0].bytes(), 62U);
}

// ---- broken rules

using DirectDeath = Direct;

TEST_F(DirectDeath, AnIndexThatIsNotTheProducers) {
  const uint16_t at = a.put(header(), body());
  a.block(at)[2] = std::byte(1);
  EXPECT_DEATH((a.send(at), pump()), "not the last that the doorbell record");
  a.put(header(), body());
  EXPECT_DEATH((a.send(2), pump()), "not written when the doorbell record was");
}

TEST_F(DirectDeath, TheRecordAfterTheDoorbell) {
  const uint16_t at = a.put(header(), body());
  EXPECT_DEATH((a.ring(at), pump()), "write the element, then the record, then ring");
}

TEST_F(DirectDeath, AWrongSize) {
  const uint16_t at = a.put(header(), body());
  a.block(at)[7] = std::byte(9);
  EXPECT_DEATH((a.send(at), pump()), "not the last that the doorbell record");
  a.block(at)[7] = std::byte(4);
  EXPECT_DEATH((a.send(at), pump()), "bytes of header inline|not the last");
  a.block(at)[7] = std::byte(7);
  EXPECT_DEATH((a.send(at), pump()), "a data segment of no bytes");
}

TEST_F(DirectDeath, AnotherPairsElement) {
  const uint16_t at = a.put(header(), body());
  a.block(at)[6] ^= std::byte(0xff);
  EXPECT_DEATH((a.send(at), pump()), "is rung with an element of pair");
}

TEST_F(DirectDeath, KeysAndBounds) {
  ibv_sge s = body();
  s.lkey ^= 1;
  EXPECT_DEATH((a.send(a.put(header(), s)), pump()), "is no memory region");
  s = a.segment(63, End::kSlot + 1);
  EXPECT_DEATH((a.send(a.put(header(), s)), pump()), "outside region");
  EXPECT_DEATH((b.receive(b.segment(63, End::kSlot + 1)), a.send(a.put(header(), body())), pump()),
               "outside region");
}

TEST_F(DirectDeath, ABufferPostedTwice) {
  EXPECT_DEATH((b.receive(1), b.receive(1), a.send(a.put(header(), body())), pump()),
               "is posted already");
}

TEST_F(DirectDeath, TooManyReceives) {
  const auto post = [&] {
    for (size_t i = 0; i < 9; ++i) b.receive(i);
    a.send(a.put(header(), body()));
    pump();
  };
  EXPECT_DEATH(post(), "receive queue .* overflows");
}

TEST_F(DirectDeath, ASendQueueThatNobodyReaps) {
  const auto fill = [&] {
    for (uint32_t i = 0; i <= a.qp.sq.wqe_cnt / 2; ++i) {
      b.receive(i % 8);
      a.send(a.put(header(), body(), 0));
      pump();
      b.receives.poll();
    }
  };
  EXPECT_DEATH(fill(), "send queue .* overflows");
}

TEST_F(DirectDeath, ACompletionQueueThatNobodyPolls) {
  const auto fill = [&] {
    for (unsigned i = 0; i < 65; ++i) {
      b.receive(i % 8);
      a.send(a.put(header(), body()));
      pump();
      a.sends.poll();
    }
  };
  EXPECT_DEATH(fill(), "completion queue of 64 entries overflows");
}

TEST_F(DirectDeath, TooLittleInlineAndOpcodesOfOthers) {
  EXPECT_DEATH((a.send(a.put(header(14), body(14))), pump()), "14 bytes of header inline");
  const uint16_t at = a.put(header(), body());
  a.block(at)[3] = std::byte(MLX5_OPCODE_RDMA_WRITE);
  EXPECT_DEATH((a.send(at), pump()), "opcode 0x08");
}

TEST_F(DirectDeath, BlueFlameOfOtherBytes) {
  const uint16_t at = a.put(header(), body());
  a.write_record();
  std::memcpy(a.qp.bf.reg, a.block(at), 128);
  static_cast<std::byte*>(a.qp.bf.reg)[70] ^= std::byte(1);
  EXPECT_DEATH(pump(), "BlueFlame of pair");
}

TEST_F(DirectDeath, ArmingOutOfStep) {
  b.receives.arm(2);
  EXPECT_DEATH(pump(), "serial number 2 after 0 events");
  b.receives.arm(0);
  b.receives.cq.dbrec[1] = htobe32(1);
  EXPECT_DEATH(pump(), "the record first");
}

TEST_F(DirectDeath, CallsOnWhatWasGivenAway) {
  EXPECT_DEATH(b.poll(b.received), "mlx5dv_init_obj gave completion queue");
  EXPECT_DEATH(a.post_send(1, a.segment(0, 60)), "gave the send queue");
}

}  // namespace
}  // namespace softnic_test
