// A doorbell that a debug register watches is a call: what it asks for is done when the store is.
#include <poll.h>
#include <signal.h>
#include <time.h>

#include <thread>

#include "direct_end.h"

namespace softnic_test {
namespace {

/// One pair takes all debug registers that there are: host b's doorbells are looked at.
class Watched : public testing::Test {
 protected:
  DirectEnd a{0, {.by_hand = false}}, b{1, {.by_hand = false}};
  std::vector<std::byte> frame_ = udp_frame(7000, 100);

  void SetUp() override {
    if (!softnic_is_watched(a.device)) GTEST_SKIP() << "the kernel grants no debug register";
    a.take_all();
    b.take_all();
  }
  /// The frame, by one of the two registers.
  void send(int buffer = 0) {
    std::memcpy(a.slot(0), frame_.data() + 42, frame_.size() - 42);
    const auto body = a.segment(0, static_cast<uint32_t>(frame_.size() - 42));
    const uint16_t index = a.put(std::span(frame_).first(42), body);
    a.write_record();
    a.ring(index, buffer);
  }
};

TEST_F(Watched, AStoreIsACall) {
  for (unsigned i = 0; i < 300; ++i) {
    b.receive(i % 8);
    send(static_cast<int>(i % 2));
    ASSERT_EQ(a.sends.poll().size(), 1U) << i;
    ASSERT_EQ(b.receives.poll().size(), 1U) << i;
  }
}

TEST_F(Watched, InEveryThread) {
  b.receive(0);
  size_t done = 0;
  std::thread([&] {
    send();
    done = a.sends.poll().size();
  }).join();
  EXPECT_EQ(done, 1U);
  EXPECT_EQ(b.receives.poll().size(), 1U);
}

// The element at 0 is rung again, with the same word.
TEST_F(Watched, AfterAReset) {
  b.receive(0);
  send();
  ASSERT_EQ(a.sends.poll().size(), 1U);
  for (const ibv_qp_state to : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
    ASSERT_EQ(a.move(to), 0);
  a.produced = 0;
  b.receive(1);
  send();
  EXPECT_EQ(a.sends.poll().size(), 1U);
  EXPECT_EQ(b.receives.poll().size(), 2U);
}

TEST_F(Watched, ArmingIsACall) {
  pollfd readable{a.channel->fd, POLLIN, 0};
  a.receive(0);
  a.receives.arm(0);
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
  softnic_inject(a.device, frame_.data(), frame_.size());
  EXPECT_EQ(::poll(&readable, 1, 0), 1);
  ibv_cq* cq;
  void* cookie;
  EXPECT_EQ(ibv_get_cq_event(a.channel, &cq, &cookie), 0);
  ibv_ack_cq_events(cq, 1);
}

// It is not told; the device's thread looks now and then.
TEST_F(Watched, AThreadThatBlocksTheSignal) {
  b.receive(0);
  sigset_t traps, before;
  sigemptyset(&traps);
  sigaddset(&traps, SIGTRAP);
  pthread_sigmask(SIG_BLOCK, &traps, &before);
  send();
  const timespec nap{0, 1'000'000};
  for (int i = 0; i < 10'000 && !b.receives.has(); ++i) nanosleep(&nap, nullptr);
  EXPECT_EQ(b.receives.poll().size(), 1U);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace softnic_test
