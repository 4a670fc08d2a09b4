// Closes that meet calls of other threads: a File ends once, and is nobody else's before. The
// sanitized builds lose the processor where it matters (core/yield_point.h); there
// VIREO_RACE_SECONDS=600 is worth its time. 2 s by default.
#include <atomic>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {
namespace {

Duration race_time() {
  const char* const seconds = std::getenv("VIREO_RACE_SECONDS");
  return Duration::s(seconds != nullptr ? std::atoi(seconds) : 2);
}

class CloseRace : public BothSides {
 protected:
  CloseRace() {
    listener_ = b.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(b.bind(listener_, 0), 0);
    EXPECT_EQ(b.listen(listener_, 64), 0);
    to_ = address(b.host(), port_of(b.getsockname(listener_)));
  }
  ~CloseRace() override { b.close(listener_); }

  /// A carried socket whose receives end soon, and its peer (-1: none).
  std::pair<int, int> stream() {
    const int c = a.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(a.connect(c, sockaddr_of(to_), length(to_)), 0);
    hurry(c);
    return {c, b.accept(listener_)};
  }
  std::pair<int, int> datagrams() {
    const int fd = a.socket(AF_INET, SOCK_DGRAM);
    // A reader of the number's last life may have given it a port by then: connect takes either.
    EXPECT_EQ(a.connect(fd, sockaddr_of(to_), length(to_)), 0);
    hurry(fd);
    return {fd, -1};
  }

 private:
  void hurry(int fd) {
    const timeval soon{0, 100};
    EXPECT_EQ(a.setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon), 0);
  }
  int listener_ = -1;
  sockaddr_storage to_{};
};
INSTANTIATE_TEST_SUITE_P(Sides, CloseRace, testing::Values(Side::kVireo),
                         [](const auto&) { return "vireo"; });

// The closer's is the last reference; then a receive takes one, waits, and lets go of it before the
// closer has the locks: two find that nobody has the File any more.
TEST_P(CloseRace, AFileThatIsClosedAmidReceivesIsFreedOnce) {
  constexpr int kReaders = 3, kAtOnce = 8;
  std::atomic<bool> stop{false};
  std::atomic<int> fd{-1};
  std::atomic<uint64_t> receives{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i)
    readers.emplace_back([&] {
      char buffer[64];
      const iovec v{buffer, sizeof buffer};
      while (!stop) {
        const Handle h = fd_table().find(fd.load());
        if (!h) continue;
        const auto n = sock::recv(h, {&v, 1}, 0);
        EXPECT_LE(n.value_or(0), ssize_t{64});
        ++receives;
      }
    });
  uint64_t rounds = 0, closes = 0;
  for (const Instant end = Clock::now() + race_time(); Clock::now() < end && !HasFailure();) {
    std::vector<std::pair<int, int>> all;
    std::set<const File*> files;
    for (int i = 0; i < kAtOnce; ++i) {
      all.push_back(i % 4 == 0 ? stream() : datagrams());
      const Handle h = fd_table().find(all.back().first);
      ASSERT_TRUE(h);
      EXPECT_TRUE(h->is_carried());
      EXPECT_TRUE(files.insert(h.file).second) << "two sockets have one File, round " << rounds;
    }
    for (const auto& [ours, peer] : all) {
      fd = ours;
      for (uint64_t wait = rounds % 7 * 20; wait != 0; --wait) cpu_relax();
      if (rounds % 3 == 0) ::usleep(150);
      EXPECT_EQ(a.close(ours), 0);
      if (peer >= 0) {
        EXPECT_EQ(b.close(peer), 0);
      }
      ++closes;
    }
    ++rounds;
  }
  stop = true;
  for (std::thread& t : readers) t.join();
  EXPECT_GT(receives, 0U);
  RecordProperty("closes", std::to_string(closes));
  printf("%lu closes, %lu receives, each File of %lu rounds distinct\n",
         static_cast<unsigned long>(closes), static_cast<unsigned long>(receives.load()),
         static_cast<unsigned long>(rounds));
}

}  // namespace
}  // namespace vireo::test
