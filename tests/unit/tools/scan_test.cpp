// This process as one that uses Vireo: a memfd of the name, and /proc as it is.
#include "tools/vireo-stat/scan.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>

#include "core/fd.h"
#include "tests/unit/tools/layout.h"

namespace vireo {
namespace {

class Publish {
 public:
  explicit Publish(bool sealed = true)
      : fd_(::memfd_create(kStatsMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(::ftruncate(fd_.get(), sizeof(StatsLayout)), 0);
    if (sealed) {
      EXPECT_EQ(::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
    void* at =
        ::mmap(nullptr, sizeof(StatsLayout), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    layout_ = new (at) StatsLayout;
    layout_->bytes = sizeof(StatsLayout);
    layout_->pid = ::getpid();
    layout_->engines[0].rx_packets.add(42);
  }
  Publish(const Publish&) = delete;
  ~Publish() { ::munmap(layout_, sizeof(StatsLayout)); }
  StatsLayout* operator->() { return layout_; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  StatsLayout* layout_;
};

TEST(Scan, FindsThisProcessAmongAll) {
  Publish here;
  const Scan all = scan_processes(std::nullopt);
  bool found = false;
  for (const ProcessReading& p : all.processes) {
    if (p.pid != ::getpid()) continue;
    found = true;
    EXPECT_EQ(p.engine[counter_index(kEngineCounters, "rx_packets")], 42U);
  }
  EXPECT_TRUE(found);
}

TEST(Scan, NothingWithoutCounters) {
  const Scan one = scan_processes(::getpid());
  EXPECT_TRUE(one.processes.empty());
  EXPECT_TRUE(one.unread.empty());
  EXPECT_TRUE(scan_processes(0x3fff'ffff).processes.empty()) << "no such process";
}

TEST(Scan, ADupIsTheSameProcess) {
  Publish here;
  const UniqueFd again(::dup(here.fd()));
  EXPECT_EQ(scan_processes(::getpid()).processes.size(), 1U);
}

TEST(Scan, AChildThatHoldsItsParentsIsNotListed) {
  Publish here;
  int hold[2];
  ASSERT_EQ(::pipe(hold), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char c;
    ::close(hold[1]);
    (void)!::read(hold[0], &c, 1);
    ::_exit(0);
  }
  EXPECT_TRUE(scan_processes(child).processes.empty());
  ::close(hold[1]);
  ::close(hold[0]);
  ::waitpid(child, nullptr, 0);
}

TEST(Scan, SaysWhatItCannotRead) {
  {
    Publish other;
    other->version = kStatsVersion + 1;
    const Scan s = scan_processes(::getpid());
    EXPECT_TRUE(s.processes.empty());
    ASSERT_EQ(s.unread.size(), 1U);
    EXPECT_NE(s.unread[0].find("version"), std::string::npos);
  }
  {
    Publish loose(false);
    EXPECT_EQ(scan_processes(::getpid()).unread.size(), 1U) << "it could shrink under our feet";
  }
  {
    Publish foreign;
    foreign->magic = 1;
    EXPECT_EQ(scan_processes(::getpid()).unread.size(), 1U);
  }
}

}  // namespace
}  // namespace vireo
