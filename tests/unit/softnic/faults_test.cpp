// Faults on demand: each is seen by the program as a real device would show it.
#include <cstring>

#include "end.h"

namespace softnic_test {
namespace {

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    b.take_all();
    for (uint64_t i = 0; i < 8; ++i) b.post_receive(i, b.segment(i, End::kSlot));
    const auto f = udp_frame(7000, 60);
    std::memcpy(a.slot(0), f.data(), f.size());
  }
  int send() { return a.post_send(1, a.segment(0, 102)); }
  ibv_event_type event(End& e) {
    ibv_async_event got{};
    EXPECT_EQ(ibv_get_async_event(e.context, &got), 0);
    ibv_ack_async_event(&got);
    return got.event_type;
  }
  End a{0}, b{1};
};

TEST_F(Faults, AHeldDeviceDoesNothingUntilStepped) {
  softnic_hold(a.device, true);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(send(), 0);
  EXPECT_EQ(b.poll(b.received).size(), 0U);
  EXPECT_EQ(a.poll(a.sent).size(), 0U);
  EXPECT_EQ(softnic_step(a.device, 1), 1U);
  EXPECT_EQ(b.poll(b.received).size(), 1U);
  softnic_hold(a.device, false);
  EXPECT_EQ(b.poll(b.received).size(), 2U);
  EXPECT_EQ(a.poll(a.sent).size(), 3U);
}

TEST_F(Faults, AFailedSendStopsThePair) {
  softnic_fail_sends(a.device, 1, IBV_WC_GENERAL_ERR);
  ASSERT_EQ(send(), 0);
  ASSERT_EQ(send(), 0);
  const auto got = a.poll(a.sent);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].status, IBV_WC_GENERAL_ERR);
  EXPECT_EQ(got[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(b.poll(b.received).size(), 0U);
}

TEST_F(Faults, AnUnpluggedLinkLosesFramesAndSaysSo) {
  softnic_set_link(a.device, false);
  EXPECT_EQ(event(a), IBV_EVENT_PORT_ERR);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(a.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  ASSERT_EQ(send(), 0);
  EXPECT_EQ(a.poll(a.sent).size(), 1U);
  softnic_set_link(a.device, true);
  EXPECT_EQ(event(a), IBV_EVENT_PORT_ACTIVE);
  ASSERT_EQ(send(), 0);
  EXPECT_EQ(b.poll(b.received).size(), 1U);
}

TEST_F(Faults, ADroppedFrameAndALostEvent) {
  softnic_drop(b.device, 1);
  ASSERT_EQ(send(), 0);
  EXPECT_EQ(b.poll(b.received).size(), 0U);
  ASSERT_EQ(ibv_req_notify_cq(b.received, 0), 0);
  softnic_lose_events(b.device, 1);
  ASSERT_EQ(send(), 0);
  ibv_cq* cq;
  void* cookie;
  EXPECT_EQ(ibv_get_cq_event(b.channel, &cq, &cookie), -1);
  EXPECT_EQ(b.poll(b.received).size(), 1U);
}

TEST_F(Faults, ARemovedDeviceFlushesAll) {
  softnic_remove(b.device);
  EXPECT_EQ(event(b), IBV_EVENT_DEVICE_FATAL);
  const auto got = b.poll(b.received);
  ASSERT_EQ(got.size(), 8U);
  for (const ibv_wc& wc : got) EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(ibv_open_device(b.device), nullptr);
}

}  // namespace
}  // namespace softnic_test
