#include "tests/unit/net/lab.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>

namespace vireo::net {

Lab::Lab() {
  std::promise<bool> ready;
  thread_ = std::thread([&] {
    tid_ = gettid();
    const bool ok = unshare(CLONE_NEWNET) == 0 && shell("ip link set lo up");
    ready.set_value(ok);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || work_; });
      if (stop_) return;
      work_();
      work_ = nullptr;
      changed_.notify_all();
    }
  });
  EXPECT_TRUE(ready.get_future().get());
}

Lab::~Lab() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Lab::run(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  work_ = std::move(work);
  changed_.notify_all();
  changed_.wait(lock, [&] { return !work_; });
}

void Lab::sh(const std::string& commands) {
  run([&] { ASSERT_TRUE(shell(commands)) << commands; });
}

bool shell(const std::string& commands, const std::string& input) {
  FILE* p = popen(("set -e; " + commands).c_str(), "w");
  if (p == nullptr) return false;
  fwrite(input.data(), 1, input.size(), p);
  return pclose(p) == 0;
}

std::optional<std::chrono::microseconds> until(Mirror& m,
                                               const std::function<bool(const Snapshot&)>& done,
                                               std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  SnapshotStore::Reader reader(m.store());
  for (;;) {
    reader.quiesce();
    if (done(reader.snapshot()))
      return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(begin + limit - Clock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd p{.fd = m.fd(), .events = POLLIN, .revents = 0};
    poll(&p, 1, static_cast<int>(left.count()));
    m.process();
  }
}

}  // namespace vireo::net
