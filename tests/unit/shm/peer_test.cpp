// Two processes on a wire: traffic, sleep, and the death of one.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "dev/shm/shm_device.h"

namespace vireo {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// One end with its pool and queue.
struct End {
  explicit End(const std::string& name) : memory(512 * 2048), pool(memory, 2048) {
    auto opened = open_shm(name, {.slots = 64});
    if (!opened) return;
    device = std::move(*opened);
    auto q = device->open_queue(QueueId(0), pool);
    if (q) queue = std::move(*q);
  }
  bool send(uint64_t number) {
    std::byte bytes[64] = {};
    std::memcpy(bytes, &number, sizeof number);
    return queue->tx({bytes, {}}, Doorbell::kNow);
  }
  /// The next frame's number; waits up to five seconds, asleep if `asleep`.
  uint64_t receive(bool asleep) {
    const auto end = SteadyClock::now() + std::chrono::seconds(5);
    while (SteadyClock::now() < end) {
      RxDesc d;
      if (queue->rx_burst({&d, 1}) == 1) {
        uint64_t number;
        std::memcpy(&number, d.packet->data(), sizeof number);
        return number;
      }
      const auto armed = asleep ? queue->arm() : Result<bool>(false);
      if (!armed) return UINT64_MAX - 1;
      if (!*armed) {
        sched_yield();  // the machine may have one processor to spare
        continue;
      }
      pollfd p{queue->wait_fd(), POLLIN, 0};
      if (poll(&p, 1, 5'000) != 1) return UINT64_MAX - 2;
      queue->wake_ack();
    }
    return UINT64_MAX;
  }

  std::vector<std::byte> memory;
  PacketPool pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Queue> queue;
};

std::string unique_name(const char* what) {
  return std::string(what) + "-" + std::to_string(getpid());
}

/// A child that answers every frame with its number + 1, until the peer is gone.
pid_t echo_in_child(const std::string& name, bool asleep) {
  const pid_t child = fork();
  if (child != 0) return child;
  {
    End end(name);
    if (!end.queue) _exit(2);
    for (;;) {
      const uint64_t n = end.receive(asleep);
      if (n >= UINT64_MAX - 2) break;
      while (!end.send(n + 1)) {
      }
    }
  }
  _exit(0);
}

class ShmPeer : public ::testing::TestWithParam<bool> {};

TEST_P(ShmPeer, PingPongThenCloseEndsThePeer) {
  const std::string name = unique_name("pingpong");
  int status = 0;
  pid_t child = 0;
  {
    End end(name);
    ASSERT_TRUE(end.queue);
    child = echo_in_child(name, GetParam());
    for (uint64_t i = 0; i < 3000; ++i) {
      ASSERT_TRUE(end.send(i));
      ASSERT_EQ(end.receive(GetParam()), i + 1);
    }
  }
  if (!GetParam()) kill(child, SIGKILL);  // it polls and never asks whether we live
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (GetParam()) {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

INSTANTIATE_TEST_SUITE_P(, ShmPeer, ::testing::Bool(),
                         [](const auto& i) { return std::string(i.param ? "Asleep" : "Polling"); });

TEST(ShmPeerDeath, APollingSurvivorNotices) {
  const std::string name = unique_name("dies");
  End end(name);
  ASSERT_TRUE(end.queue);
  const pid_t child = echo_in_child(name, true);
  ASSERT_TRUE(end.send(1));
  ASSERT_EQ(end.receive(false), 2U);
  EXPECT_TRUE(end.queue->alive());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto limit = SteadyClock::now() + std::chrono::seconds(5);
  while (end.queue->alive() && SteadyClock::now() < limit) {
  }
  EXPECT_FALSE(end.queue->alive());
  EXPECT_FALSE(end.queue->arm());
  EXPECT_EQ(end.queue->arm().error().code, ENODEV);
}

TEST(ShmPeerDeath, ASleepingSurvivorWakes) {
  const std::string name = unique_name("wakes");
  End end(name);
  ASSERT_TRUE(end.queue);
  const pid_t child = echo_in_child(name, true);
  ASSERT_TRUE(end.send(1));
  ASSERT_EQ(end.receive(true), 2U);
  const auto armed = end.queue->arm();
  ASSERT_TRUE(armed && *armed);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  pollfd p{end.queue->wait_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&p, 1, 5'000), 1);
  end.queue->wake_ack();
  EXPECT_FALSE(end.queue->arm());
}

TEST(ShmPeerDeath, LastFramesOfAClosedPeerAreRead) {
  const std::string name = unique_name("last");
  End host(name);
  ASSERT_TRUE(host.queue);
  {
    End joiner(name);
    ASSERT_TRUE(joiner.queue);
    for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(joiner.send(i));
    joiner.queue.reset();
  }
  EXPECT_EQ(host.receive(true), 0U);
  const auto armed = host.queue->arm();
  ASSERT_TRUE(armed) << "there is more to read";
  EXPECT_FALSE(*armed);
  for (uint64_t i = 1; i < 10; ++i) EXPECT_EQ(host.receive(true), i);
  EXPECT_FALSE(host.queue->arm());
  EXPECT_FALSE(host.queue->alive());
}

TEST(ShmPeerDeath, FramesSentBeforeThePeerComesWait) {
  const std::string name = unique_name("early");
  End host(name);
  ASSERT_TRUE(host.queue);
  EXPECT_TRUE(host.queue->alive());
  for (uint64_t i = 0; i < 64; ++i) ASSERT_TRUE(host.send(i));
  EXPECT_FALSE(host.send(64)) << "the ring is full";
  const auto armed = host.queue->arm();
  ASSERT_TRUE(armed && *armed);
  End joiner(name);
  ASSERT_TRUE(joiner.queue);
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(joiner.receive(true), i);
  EXPECT_TRUE(host.send(64));
}

TEST(ShmPeerDeath, ThePairMeetsAgainAfterOneWasKilled) {
  const std::string name = unique_name("again");
  for (int round = 0; round < 3; ++round) {
    End end(name);
    ASSERT_TRUE(end.queue) << round;
    const pid_t child = echo_in_child(name, true);
    ASSERT_TRUE(end.send(7));
    EXPECT_EQ(end.receive(true), 8U);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

}  // namespace
}  // namespace vireo
