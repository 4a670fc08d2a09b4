// A device ends with the process that opened it, whatever children it left; they open it anew.
#include <dirent.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "direct_end.h"

namespace softnic_test {
namespace {

constexpr int kMaxSeconds = 5;

int descriptors() {
  int n = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++n;
  closedir(folder);
  return n;
}

/// What `f` returns in the child of a fork; the signal that ended it, negative.
template <class F>
int in_child(F f) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kMaxSeconds);
    _exit(f());
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Both ends of a wire, with doorbells that are calls and the device's own thread.
struct Both {
  DirectEnd a{0, {.by_hand = false}}, b{1, {.by_hand = false}};
  Both() { b.take_all(); }
  int carry();
};

/// Frames from one end to the other. @return 0: all came.
int Both::carry() {
  const auto frame = udp_frame(7000, 100);
  for (unsigned i = 0; i < 20; ++i) {
    b.receive(i % 8);
    std::memcpy(a.slot(0), frame.data() + 42, frame.size() - 42);
    a.send(
        a.put(std::span(frame).first(42), a.segment(0, static_cast<uint32_t>(frame.size() - 42))));
    size_t came = b.receives.poll().size();
    for (int naps = 0; came == 0 && naps < 1000; ++naps) {
      const timespec t{0, 1'000'000};
      nanosleep(&t, nullptr);
      came = b.receives.poll().size();
    }
    if (came != 1 || a.sends.poll().size() != 1) return 1;
  }
  return 0;
}

TEST(Fork, TheChildHoldsNothingOfTheDevice) {
  const int before = descriptors();
  const End end{0, {.by_hand = false}};
  ASSERT_GT(descriptors(), before);
  // Fewer: of ports that others used.
  EXPECT_EQ(in_child([&] { return descriptors() > before ? 1 : 0; }), 0);
}

int carry_in_child() {
  return in_child([] { return Both().carry(); });
}

TEST(Fork, TheChildOpensItAnew) {
  Both both;
  EXPECT_EQ(both.carry(), 0);
  EXPECT_EQ(carry_in_child(), 0);
  EXPECT_EQ(both.carry(), 0) << "the parent's goes on";
}

// The device's own thread and the program's hold its locks again and again.
TEST(Fork, WhileItsThreadsAreAtWork) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "GCC 12's ASan does not take its allocator's locks for fork()";
#endif
  Both both;
  std::atomic<bool> done{false};
  std::thread busy([&] {
    while (!done.load()) EXPECT_EQ(both.carry(), 0);
  });
  std::thread asking([&] {
    while (!done.load()) {
      (void)softnic_counts_of(both.a.device);
      ibv_free_device_list(ibv_get_device_list(nullptr));
    }
  });
  int failed = 0;
  for (int i = 0; i < 50 && failed == 0; ++i) failed = carry_in_child();
  done = true;
  busy.join();
  asking.join();
  EXPECT_EQ(failed, 0);
}

TEST(Fork, WhatTheParentListedAndOpened) {
  const End end{0, {.by_hand = false}};
  EXPECT_EQ(in_child([&] {
              if (ibv_close_device(end.context) != 0) return 1;
              ibv_context* const mine = ibv_open_device(end.device);
              if (mine == nullptr || softnic_objects_of(mine->device).contexts != 1) return 2;
              return ibv_close_device(mine) == 0 ? 0 : 3;
            }),
            0);
  EXPECT_EQ(softnic_objects_of(end.device).pairs, 1U);
}

// A child has no doorbell of its parent's, as it has none of a driver's.
TEST(Fork, TheParentsDoorbellsAreNotThere) {
  DirectEnd a{0, {.by_hand = false}};
  EXPECT_NE(in_child([&] {
              *static_cast<volatile uint64_t*>(a.qp.bf.reg) = 1;
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace softnic_test
