// Striding receive queues, driven by hand from the layouts of mlx5dv.h: a work queue, a table of
// one and the pair that flow rules lead to, beside the pair that sends.
#include <algorithm>
#include <optional>

#include "direct_end.h"

namespace softnic_test {
namespace {

constexpr uint32_t kStride = 512, kStrides = 8;  // an element is two slots
constexpr uint32_t kElement = kStride * kStrides;

ibv_wq* create_striding(const DirectEnd& e, mlx5dv_striding_rq_init_attr shape,
                        uint32_t elements = 4) {
  ibv_wq_init_attr attr{};
  attr.wq_type = IBV_WQT_RQ;
  attr.max_wr = elements;
  attr.max_sge = 1;
  attr.pd = e.domain;
  attr.cq = e.received;
  mlx5dv_wq_init_attr mlx5{MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ, shape};
  return mlx5dv_create_wq(e.context, &attr, &mlx5);
}

class StridingEnd : public DirectEnd {
 public:
  explicit StridingEnd(int number) : DirectEnd(number, {.sends = 8, .receives = 0}) {
    wq = create({9, 3, 0});
    EXPECT_EQ(mlx5dv_init_obj(object(), MLX5DV_OBJ_RWQ), 0);
    EXPECT_EQ(modify(IBV_WQS_RDY), 0);
    ibv_rwq_ind_table_init_attr of_one{0, &wq, 0};
    table = ibv_create_rwq_ind_table(context, &of_one);
    EXPECT_NE(table, nullptr);
    hash_pair = create_pair();
    EXPECT_NE(hash_pair, nullptr);
    ibv_flow_attr all{};
    all.type = IBV_FLOW_ATTR_ALL_DEFAULT;
    all.size = sizeof all;
    all.port = 1;
    rule = ibv_create_flow(hash_pair, &all);
    EXPECT_NE(rule, nullptr);
  }
  ~StridingEnd() {
    EXPECT_EQ(ibv_destroy_wq(wq), EBUSY) << "a table has it";
    EXPECT_EQ(ibv_destroy_rwq_ind_table(table), EBUSY) << "a pair has it";
    EXPECT_EQ(ibv_destroy_flow(rule), 0);
    EXPECT_EQ(ibv_destroy_qp(hash_pair), 0);
    EXPECT_EQ(ibv_destroy_rwq_ind_table(table), 0);
    EXPECT_EQ(ibv_destroy_wq(wq), 0);
  }
  ibv_wq* create(mlx5dv_striding_rq_init_attr shape, uint32_t elements = 4) const {
    return create_striding(*this, shape, elements);
  }
  ibv_qp* create_pair(uint8_t key_bytes = 40) const {
    uint8_t key[40] = {};
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    attr.pd = domain;
    attr.rwq_ind_tbl = table;
    attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, key_bytes, key, 0};
    const verbs_context* extended = verbs_get_ctx(context);
    return extended->create_qp_ex(context, &attr);
  }
  int modify(ibv_wq_state to) const {
    ibv_wq_attr attr{};
    attr.attr_mask = IBV_WQ_ATTR_STATE;
    attr.wq_state = to;
    return ibv_modify_wq(wq, &attr);
  }
  mlx5dv_obj* object() {
    object_.rwq = {wq, &ring};
    return &object_;
  }
  /// `bytes` from slot `i` on are an element.
  void post(size_t i, uint32_t bytes = kElement) {
    std::byte* const element =
        static_cast<std::byte*>(ring.buf) + size_t{posted & (ring.wqe_cnt - 1U)} * ring.stride;
    std::memset(element, 0, sizeof(mlx5_wqe_srq_next_seg));
    const ibv_sge s = segment(i, bytes);
    mlx5dv_set_data_seg(
        reinterpret_cast<mlx5_wqe_data_seg*>(element + sizeof(mlx5_wqe_srq_next_seg)), s.length,
        s.lkey, s.addr);
    *ring.dbrec = htobe32(++posted);
  }

  ibv_wq* wq;
  ibv_rwq_ind_table* table;
  ibv_qp* hash_pair;
  ibv_flow* rule;
  mlx5dv_rwq ring{};
  uint16_t posted = 0;

 private:
  mlx5dv_obj object_{};
};

/// What the length of a completion of such a queue says.
struct Told {
  uint32_t bytes, strides;
  bool is_filler;
  uint16_t element, stride;
};
bool operator==(const Told& a, const Told& b) {
  return a.bytes == b.bytes && a.strides == b.strides && a.is_filler == b.is_filler &&
         a.element == b.element && a.stride == b.stride;
}
Told told(const Completion& c) {
  return {c.bytes() & 0xffff, c.bytes() >> 16 & 0x7fff, c.bytes() >> 31 != 0, be16toh(c.cqe.wqe_id),
          c.counter()};
}

class Striding : public testing::Test {
 protected:
  DirectEnd a{0};
  StridingEnd b{1};

  /// A frame of `bytes` in all.
  void send(uint32_t bytes, uint8_t fill = 7) {
    auto frame = udp_frame(7000, bytes - 42);
    std::fill(frame.begin() + 42, frame.end(), std::byte(fill));
    std::memcpy(a.slot(0), frame.data() + 42, bytes - 42);
    a.send(a.put(std::span(frame).first(42), a.segment(0, bytes - 42)));
    pump();
    EXPECT_EQ(a.sends.poll().size(), 1U);
  }
  uint64_t dropped() { return softnic_counts_of(b.device).rx_no_receive - dropped_before_; }
  const uint64_t dropped_before_ = softnic_counts_of(b.device).rx_no_receive;
};

TEST_F(Striding, PacketsFillTheElementsStrideByStride) {
  b.post(0);
  b.post(2);
  EXPECT_EQ(softnic_objects_of(b.device).receives, 2 * kStrides);
  for (const uint32_t bytes : {100U, 512U, 513U, 1514U}) send(bytes, static_cast<uint8_t>(bytes));
  const auto got = b.receives.poll();
  ASSERT_EQ(got.size(), 4U);
  EXPECT_EQ(told(got[0]), (Told{100, 1, false, 0, 0}));
  EXPECT_EQ(told(got[1]), (Told{512, 1, false, 0, 1}));
  EXPECT_EQ(told(got[2]), (Told{513, 2, false, 0, 2}));
  EXPECT_EQ(told(got[3]), (Told{1514, 3, false, 0, 4}));
  EXPECT_EQ(got[3].opcode, MLX5_CQE_RESP_SEND);
  EXPECT_EQ(got[3].format, 0);
  EXPECT_EQ(got[3].cqe.hds_ip_ext, MLX5_CQE_L2_OK | MLX5_CQE_L3_OK | MLX5_CQE_L4_OK);
  EXPECT_EQ(b.slot(0)[4 * kStride + 1513], static_cast<std::byte>(1514 & 0xff));
  EXPECT_EQ(softnic_objects_of(b.device).receives, 9U);
}

TEST_F(Striding, WhatIsTooShortIsFiller) {
  b.post(0);
  b.post(2);
  for (int i = 0; i < 7; ++i) send(100);
  b.receives.poll();
  send(600);
  const auto got = b.receives.poll();
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(told(got[0]), (Told{0, 1, true, 0, 7}));
  EXPECT_EQ(told(got[1]), (Told{600, 2, false, 1, 0}));
  EXPECT_EQ(b.slot(2)[599], std::byte(7));
}

TEST_F(Striding, WithoutAnElementFramesAreLostOrWait) {
  send(100);
  EXPECT_EQ(dropped(), 1U);
  b.post(0);
  for (int i = 0; i < 6; ++i) send(100);
  send(1514);
  EXPECT_EQ(dropped(), 2U) << "the filler left none";
  const auto got = b.receives.poll();
  ASSERT_EQ(got.size(), 7U);
  EXPECT_EQ(told(got[6]), (Told{0, 2, true, 0, 6}));
}

TEST_F(Striding, TheRingTurns) {
  for (unsigned i = 0; i < 500; ++i) {
    if (i % kStrides == 0) b.post(2 * (i / kStrides % 4));
    send(60 + i % 400, static_cast<uint8_t>(i));
    const auto got = b.receives.poll();
    ASSERT_EQ(got.size(), 1U) << i;
    ASSERT_EQ(told(got[0]), (Told{60 + i % 400, 1, false, static_cast<uint16_t>(i / kStrides),
                                  static_cast<uint16_t>(i % kStrides)}));
    ASSERT_EQ(b.slot(2 * (i / kStrides % 4))[i % kStrides * kStride + 50],
              static_cast<std::byte>(i));
  }
}

TEST_F(Striding, AnErrorFlushesTheElementsAndTheQueueBeginsAgain) {
  b.post(0);
  b.post(2);
  send(100);
  EXPECT_EQ(b.receives.poll().size(), 1U);
  softnic_fail_pairs(b.device, true);
  const auto got = b.receives.poll();
  ASSERT_EQ(got.size(), 2U) << "one for each element";
  for (const Completion& c : got) {
    EXPECT_EQ(c.opcode, MLX5_CQE_RESP_ERR);
    EXPECT_EQ(c.syndrome(), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  }
  b.post(0);
  pump();
  EXPECT_EQ(b.receives.poll().size(), 1U) << "what is posted then is flushed as well";
  EXPECT_EQ(b.modify(IBV_WQS_RDY), EINVAL) << "only from RESET";
  EXPECT_EQ(b.modify(IBV_WQS_RESET), 0);
  EXPECT_EQ(*b.ring.dbrec, 0U);
  EXPECT_EQ(b.modify(IBV_WQS_RDY), 0);
  b.posted = 0;
  b.post(4);
  send(100);
  const auto again = b.receives.poll();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(told(again[0]), (Told{100, 1, false, 0, 0}));
}

TEST_F(Striding, AQueueThatIsNotReadyTakesNothing) {
  b.post(0);
  EXPECT_EQ(b.modify(IBV_WQS_RESET), 0);
  send(100);
  EXPECT_TRUE(b.receives.poll().empty());
  EXPECT_EQ(softnic_objects_of(b.device).receives, 0U);
}

TEST_F(Striding, AnArmedQueueTells) {
  b.receives.arm(0);
  b.post(0);
  send(100);
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  ASSERT_EQ(ibv_get_cq_event(b.channel, &cq, &cookie), 0);
  EXPECT_EQ(cq, b.received);
  ibv_ack_cq_events(cq, 1);
}

TEST_F(Striding, WhatIsRefused) {
  const auto refused = [&](mlx5dv_striding_rq_init_attr shape, int error, uint32_t elements = 4) {
    EXPECT_EQ(b.create(shape, elements), nullptr);
    EXPECT_EQ(errno, error);
  };
  refused({5, 3, 0}, EINVAL);
  refused({14, 3, 0}, EINVAL);
  refused({9, 2, 0}, EINVAL);
  refused({9, 17, 0}, EINVAL);
  refused({9, 3, 0}, EINVAL, 1U << 20);
  refused({9, 3, 1}, EOPNOTSUPP);
  EXPECT_EQ(b.create_pair(39), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_wq* twice[] = {b.wq, b.wq};
  ibv_rwq_ind_table_init_attr of_two{1, twice, 0};
  EXPECT_EQ(ibv_create_rwq_ind_table(b.context, &of_two), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(b.hash_pair, &attr, IBV_QP_STATE | IBV_QP_PORT), EOPNOTSUPP);
}

/// Of a device that lacks `what`: {least strides of an element, errno of mlx5dv_create_wq()}, 0 for
/// what is not told.
std::pair<uint32_t, int> offers(const char* what) {
  setenv("SOFTNIC_LACKS", what, 1);
  DirectEnd e(0);
  mlx5dv_context c{};
  c.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ;
  EXPECT_EQ(mlx5dv_query_device(e.context, &c), 0);
  const bool tells = (c.comp_mask & MLX5DV_CONTEXT_MASK_STRIDING_RQ) != 0;
  if (tells) {
    EXPECT_TRUE(ibv_is_qpt_supported(c.striding_rq_caps.supported_qpts, IBV_QPT_RAW_PACKET));
  }
  ibv_wq* wq = create_striding(e, {11, 3, 0});
  const int error = wq != nullptr ? 0 : errno;
  if (wq != nullptr) {
    EXPECT_EQ(ibv_destroy_wq(wq), 0);
  }
  unsetenv("SOFTNIC_LACKS");
  return {tells ? c.striding_rq_caps.min_single_wqe_log_num_of_strides : 0, error};
}

TEST(StridingDevice, SaysWhatItOffers) {
  EXPECT_EQ(offers(""), (std::pair{3U, 0}));
  EXPECT_EQ(offers("shortruns"), (std::pair{9U, EINVAL}));
  EXPECT_EQ(offers("striding"), (std::pair{0U, EOPNOTSUPP}));
}

TEST(StridingDevice, NotWhereCompletionsAreCompressed) {
  DirectEnd e(0, {.compress = true});
  EXPECT_EQ(create_striding(e, {11, 3, 0}), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// ---- broken rules

using StridingDeath = Striding;

TEST_F(StridingDeath, AnElementOfAnotherLength) {
  EXPECT_DEATH((b.post(0, kElement - 1), send(100)),
               "an element of 4095 bytes, 8 strides have 4096");
}

TEST_F(StridingDeath, OutsideTheRegion) { EXPECT_DEATH((b.post(63), send(100)), "outside region"); }

TEST_F(StridingDeath, ABufferPostedTwice) {
  b.post(0);
  EXPECT_DEATH((b.post(1), send(100)), "is posted already") << "half of it";
}

TEST_F(StridingDeath, TooManyElements) {
  const auto post = [&] {
    for (size_t i = 0; i < 5; ++i) b.post(2 * i);
    send(100);
  };
  EXPECT_DEATH(post(), "striding queue .* overflows");
}

TEST_F(StridingDeath, ACompletionQueueThatNobodyPolls) {
  const auto fill = [&] {
    for (unsigned i = 0; i < 65; ++i) {
      if (i % kStrides == 0) b.post(2 * (i / kStrides % 4));
      send(100);
    }
  };
  EXPECT_DEATH(fill(), "completion queue of 64 entries overflows");
}

}  // namespace
}  // namespace softnic_test
