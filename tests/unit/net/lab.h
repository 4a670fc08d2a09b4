// A network namespace for one test, without a name: it ends with the thread that is in it, however
// the test ends. Owner: the test. Thread: run() works in the lab's own thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "stack/net/netlink.h"

namespace vireo::net {

class Lab {
 public:
  Lab();
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  /// Runs `work` in the namespace and waits for it.
  void run(std::function<void()> work);
  /// Runs shell commands in the namespace; the test fails if they do.
  void sh(const std::string& commands);
  /// For "ip link set dev X netns N".
  pid_t tid() const { return tid_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool stop_ = false;
  pid_t tid_ = 0;
  std::thread thread_;
};

/// Shell commands in the calling thread's namespace; true on success. `input` goes to their
/// standard input.
bool shell(const std::string& commands, const std::string& input = "");

/// Lets the mirror work until `done` holds. @return the time that took, or nullopt after `limit`.
std::optional<std::chrono::microseconds> until(
    Mirror& m, const std::function<bool(const Snapshot&)>& done,
    std::chrono::milliseconds limit = std::chrono::milliseconds(2000));

#define REQUIRE_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "needs root"

}  // namespace vireo::net
