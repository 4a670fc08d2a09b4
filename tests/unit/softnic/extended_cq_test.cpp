// Extended completion queues of softnic: what they tell, and the rules of ibv_create_cq_ex(3).
#include <time.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "end.h"

namespace softnic_test {
namespace {

constexpr uint64_t kTime = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
constexpr uint64_t kWall = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr uint64_t kLength = IBV_WC_EX_WITH_BYTE_LEN;
constexpr uint64_t kTag = IBV_WC_EX_WITH_FLOW_TAG;
constexpr uint64_t kVlan = IBV_WC_EX_WITH_CVLAN;

class ExtendedCq : public ::testing::Test {
 protected:
  explicit ExtendedCq(uint64_t fields = kLength | kTag | kTime | kWall | kVlan)
      : b(1, {.receives = 128, .fields = fields}), cq(reinterpret_cast<ibv_cq_ex*>(b.received)) {
    for (uint64_t i = 0; i < 8; ++i) b.post_receive(100 + i, b.segment(i, End::kSlot));
    b.take_all();
  }
  void arrive(size_t payload, uint16_t port = 7000) {
    const auto f = udp_frame(port, payload);
    softnic_inject(b.device, f.data(), f.size());
  }
  int start() {
    ibv_poll_cq_attr attr{};
    return ibv_start_poll(cq, &attr);
  }
  static int64_t realtime() {
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1'000'000'000 + t.tv_nsec;
  }
  uint64_t counter() {
    ibv_values_ex v{};
    v.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    EXPECT_EQ(ibv_query_rt_values_ex(b.context, &v), 0);
    return static_cast<uint64_t>(v.raw_clock.tv_nsec);
  }
  End b;
  ibv_cq_ex* cq;
};

/// One that tells lengths only.
class LeanCq : public ExtendedCq {
 protected:
  LeanCq() : ExtendedCq(kLength) {}
};

TEST_F(ExtendedCq, ABatchTellsEachCompletion) {
  EXPECT_EQ(start(), ENOENT) << "no batch began";
  arrive(10);
  arrive(20);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(cq->wr_id, 100U);
  EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 52U);
  EXPECT_EQ(ibv_wc_read_flow_tag(cq), 0U);
  EXPECT_EQ(ibv_wc_read_cvlan(cq), 0U);
  arrive(30);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 101U);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 62U);
  ASSERT_EQ(ibv_next_poll(cq), 0) << "came meanwhile";
  EXPECT_EQ(cq->wr_id, 102U);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  EXPECT_EQ(start(), ENOENT);
  arrive(40);
  EXPECT_EQ(b.poll(b.received).size(), 1U) << "ibv_poll_cq between batches";
}

/// The counter stands between what ibv_query_rt_values_ex(3) says before and after, the wall clock
/// is PTP's; both wrap and stop for nobody.
TEST_F(ExtendedCq, TimesAreTheDevices) {
  const uint64_t before = counter();
  const int64_t wall = realtime();
  arrive(10);
  const uint64_t after = counter();
  ASSERT_EQ(start(), 0);
  EXPECT_GE(ibv_wc_read_completion_ts(cq), before);
  EXPECT_LE(ibv_wc_read_completion_ts(cq), after);
  const auto tai = static_cast<int64_t>(ibv_wc_read_completion_wallclock_ns(cq));
  EXPECT_GE(tai - 37'000'000'000, wall);
  EXPECT_LE(tai - 37'000'000'000, realtime());
  ibv_end_poll(cq);
  softnic_set_clock((uint64_t{1} << 41) - 1, 0);
  arrive(10);
  ASSERT_EQ(start(), 0);
  EXPECT_LT(ibv_wc_read_completion_ts(cq), uint64_t{1} << 40) << "it has 41 bits";
  ibv_end_poll(cq);
  softnic_set_clock(0, 0);
}

TEST_F(ExtendedCq, ABatchIsAsLongAsItsEntriesAreInUse) {
  // Those of a batch are the device's again by its end.
  arrive(10);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  for (uint64_t i = 0; i < 63; ++i) {
    arrive(10);
    b.post_receive(200 + i, b.segment(i % 8, End::kSlot));
  }
  EXPECT_DEATH(arrive(10), "completion queue of 64 entries overflows");
  ibv_end_poll(cq);
  arrive(10);
  EXPECT_EQ(b.poll(b.received).size(), 64U);
}

TEST_F(ExtendedCq, FlushedRequestsHaveAStatusAndNoMore) {
  ASSERT_EQ(b.move(IBV_QPS_ERR), 0);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(cq->wr_id, 100U);
  EXPECT_EQ(ibv_wc_read_vendor_err(cq), 0U);
  EXPECT_DEATH((void)ibv_wc_read_byte_len(cq), "byte_len: a completion of status 5 has none");
  ibv_end_poll(cq);
}

TEST_F(ExtendedCq, BatchesDoNotOverlap) {
  EXPECT_DEATH((void)ibv_next_poll(cq), "no ibv_start_poll went before");
  EXPECT_DEATH(ibv_end_poll(cq), "where ibv_start_poll fails, none began");
  EXPECT_DEATH((void)ibv_wc_read_byte_len(cq), "there is no completion");
  arrive(10);
  ASSERT_EQ(start(), 0);
  EXPECT_DEATH((void)start(), "the batch before was not ended");
  EXPECT_DEATH((void)b.poll(b.received), "a batch of ibv_start_poll is open");
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  EXPECT_DEATH((void)ibv_wc_read_byte_len(cq), "there is no completion");
  ibv_end_poll(cq);
  ibv_poll_cq_attr attr{};
  attr.comp_mask = 1;
  EXPECT_EQ(ibv_start_poll(cq, &attr), EINVAL);
}

TEST_F(LeanCq, TellsWhatWasAskedFor) {
  arrive(10);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 52U);
  EXPECT_DEATH((void)ibv_wc_read_flow_tag(cq), "flow_tag: it was not asked for");
  EXPECT_DEATH((void)ibv_wc_read_completion_ts(cq), "completion_ts: it was not asked for");
  EXPECT_DEATH((void)ibv_wc_read_qp_num(cq), "qp_num: it was not asked for");
  ibv_end_poll(cq);
}

/// What a device lacks it refuses, and no more.
TEST_F(LeanCq, WhatIsNotThereIsRefused) {
  const auto errno_of = [&](uint64_t fields, uint32_t flags = 0) {
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = 16;
    wanted.wc_flags = fields;
    wanted.flags = flags;
    if (flags != 0) wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    errno = 0;
    ibv_cq_ex* made = ibv_create_cq_ex(b.context, &wanted);
    if (made != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(made)), 0);
    }
    return made != nullptr ? 0 : errno;
  };
  EXPECT_EQ(errno_of(kLength | IBV_WC_EX_WITH_TM_INFO), EOPNOTSUPP);
  EXPECT_EQ(errno_of(kLength, IBV_CREATE_CQ_ATTR_SINGLE_THREADED), 0);
  EXPECT_EQ(errno_of(kLength, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN), EOPNOTSUPP);
  setenv("SOFTNIC_LACKS", "tags,wallclock", 1);
  EXPECT_EQ(errno_of(kTag), EOPNOTSUPP);
  EXPECT_EQ(errno_of(kWall), EOPNOTSUPP);
  EXPECT_EQ(errno_of(kTime), 0);
  setenv("SOFTNIC_LACKS", "stamps,clock", 1);
  EXPECT_EQ(errno_of(kTime), EOPNOTSUPP);
  EXPECT_EQ(errno_of(kWall), EOPNOTSUPP);
  ibv_values_ex v{};
  v.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  EXPECT_EQ(ibv_query_rt_values_ex(b.context, &v), EOPNOTSUPP);
  setenv("SOFTNIC_LACKS", "extended", 1);
  EXPECT_EQ(errno_of(kLength), EOPNOTSUPP);
  unsetenv("SOFTNIC_LACKS");
}

}  // namespace
}  // namespace softnic_test
