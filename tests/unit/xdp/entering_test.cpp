// Who founds a group, who joins, who is refused and who waits.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <vector>

#include "core/fd_messages.h"
#include "tests/unit/xdp/process.h"

namespace vireo::xdp::test {
namespace {

class XdpGroupEntering : public ::testing::Test {
 protected:
  void SetUp() override { alarm(120); }
  void TearDown() override { alarm(0); }
  const std::string name_ = unique_name();
};

Instant now() { return Clock::now_from_kernel(); }

/// A socket at the group's name of user `uid`, bound or connected.
int raw_socket(const std::string& group, uid_t uid, bool bound) {
  const std::string name = "vireo-" + std::to_string(uid) + "-" + group;
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::memcpy(a.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const auto* const at = reinterpret_cast<const sockaddr*>(&a);
  const bool ok =
      bound ? bind(fd, at, length) == 0 && listen(fd, 8) == 0 : connect(fd, at, length) == 0;
  if (ok) return fd;
  close(fd);
  return -1;
}

TEST_F(XdpGroupEntering, TheFirstFoundsAndEightAreInOneGroup) {
  std::vector<Process> all;
  uint64_t slots = 0, memory = 0;
  for (unsigned i = 0; i < 8; ++i) {
    const auto e = all.emplace_back(name_).entered();
    ASSERT_EQ(e.error, 0);
    EXPECT_EQ(e.founder, i == 0);
    if (i == 0) memory = e.memory;
    EXPECT_EQ(e.memory, memory);
    EXPECT_EQ(slots >> e.slot & 1, 0U) << "slot given twice";
    slots |= uint64_t{1} << e.slot;
  }
  for (auto& p : all) EXPECT_EQ(p.ask(Ask::kMembers), slots);
}

TEST_F(XdpGroupEntering, OfTwoAtOnceExactlyOneFounds) {
  for (int round = 0; round < 200; ++round) {
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    const auto wait = [&] {
      char c;
      close(gate[1]);
      (void)!read(gate[0], &c, 1);
    };
    Process a(name_, 1, wait), b(name_, 1, wait);
    close(gate[1]);  // opens it
    close(gate[0]);
    const auto first = a.entered(), second = b.entered();
    ASSERT_EQ(first.error, 0) << "round " << round;
    ASSERT_EQ(second.error, 0) << "round " << round;
    ASSERT_NE(first.founder, second.founder) << "round " << round;
    ASSERT_EQ(first.memory, second.memory) << "round " << round;
    ASSERT_NE(first.slot, second.slot) << "round " << round;
  }
}

TEST_F(XdpGroupEntering, WhoIsLeftKeepsTheGroup) {
  Process founder(name_);
  const auto first = founder.entered();
  Process second(name_);
  ASSERT_EQ(second.entered().error, 0);
  founder.kill_now();
  Process third(name_);
  const auto e = third.entered();
  EXPECT_EQ(e.error, 0);
  EXPECT_FALSE(e.founder);
  EXPECT_EQ(e.memory, first.memory);
}

TEST_F(XdpGroupEntering, WhenTheLastIsGoneTheNextFounds) {
  for (const bool killed : {false, true}) {
    Process a(name_), b(name_);
    ASSERT_EQ(a.entered().error, 0);
    ASSERT_EQ(b.entered().error, 0);
    if (killed) {
      a.kill_now();
      b.kill_now();
    } else {
      for (Process* p : {&a, &b}) {
        p->tell(Ask::kQuit);
        EXPECT_EQ(p->join(), 0);
      }
    }
    Process next(name_);
    const auto e = next.entered();
    EXPECT_EQ(e.error, 0);
    EXPECT_TRUE(e.founder);
    EXPECT_EQ(next.ask(Ask::kMembers), uint64_t{1} << e.slot);
  }
}

TEST_F(XdpGroupEntering, AStoppedLonelyMemberIsNotWaitedForLongerThanPatience) {
  Process founder(name_);
  ASSERT_EQ(founder.entered().error, 0);
  founder.stop();
  const Instant began = now();
  const auto refused =
      Group::enter({.name = name_, .version = 1, .patience = Duration::ms(300)}, make_memory);
  const Duration took = now() - began;
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ETIMEDOUT);
  EXPECT_STREQ(refused.error().where, "the group's members do not answer (stopped?)");
  EXPECT_GE(took, Duration::ms(300));
  EXPECT_LT(took, Duration::ms(600));
  founder.go_on();
  const auto joined = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_TRUE(joined) << joined.error().where;
  EXPECT_FALSE((*joined)->is_founder());
}

TEST_F(XdpGroupEntering, OneOfTwoStoppedTheOtherAnswers) {
  Process a(name_), b(name_);
  ASSERT_EQ(a.entered().error, 0);
  ASSERT_EQ(b.entered().error, 0);
  for (Process* stopped : {&a, &b}) {
    stopped->stop();
    Process c(name_);
    EXPECT_EQ(c.entered().error, 0);
    c.kill_now();
    stopped->go_on();
  }
}

TEST_F(XdpGroupEntering, AMemberStoppedBetweenAcceptAndAnswerIsPassedOver) {
  auto group = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_TRUE(group);
  Process joiner(name_);
  pollfd p{(*group)->fd(), POLLIN, 0};
  ASSERT_EQ(poll(&p, 1, 5000), 1);
  const int taken = accept((*group)->fd(), nullptr, nullptr);
  ASSERT_GE(taken, 0);
  for (int tries = 0; tries < 300 && (*group)->members() == 1; ++tries) {
    (*group)->serve();
    usleep(1000);
  }
  EXPECT_EQ(joiner.entered().error, 0);
  close(taken);
}

TEST_F(XdpGroupEntering, AnotherVersionIsRefused) {
  Process founder(name_, 1);
  ASSERT_EQ(founder.entered().error, 0);
  const auto refused = Group::enter({.name = name_, .version = 2}, make_memory);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOTSUP);
  EXPECT_EQ(std::popcount(founder.ask(Ask::kMembers)), 1);
}

TEST_F(XdpGroupEntering, AProcessEntersOnce) {
  auto first = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_TRUE(first);
  const auto again = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, EEXIST);
  const std::string other_name = unique_name();
  EXPECT_TRUE(Group::enter({.name = other_name, .version = 1}, make_memory)) << "another group";
  first->reset();
  EXPECT_TRUE(Group::enter({.name = name_, .version = 1}, make_memory)) << "after it left";
}

TEST_F(XdpGroupEntering, AFounderWithoutMemoryLeavesTheNameFree) {
  const auto failed = Group::enter({.name = name_, .version = 1},
                                   []() -> Result<UniqueFd> { return fail(ENOMEM, "none"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ENOMEM);
  EXPECT_TRUE(Group::enter({.name = name_, .version = 1}, make_memory));
}

TEST_F(XdpGroupEntering, TheSixtyFifthIsRefused) {
  std::vector<Process> all;
  for (unsigned i = 0; i < Group::kMaxMembers; ++i)
    ASSERT_EQ(all.emplace_back(name_).entered().error, 0) << i;
  auto refused = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EBUSY);
  EXPECT_STREQ(refused.error().where, "the group has as many members as it can have");
  all[17].tell(Ask::kQuit);
  EXPECT_EQ(all[17].join(), 0);
  auto joined = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_TRUE(joined) << joined.error().where;
}

TEST_F(XdpGroupEntering, ANameOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  Process squatter(unique_name(), 1, [&] {
    if (setresuid(65534, 65534, 65534) != 0) _exit(1);
    const char ok = raw_socket(name_, 0, true) >= 0 ? 'y' : 'n';
    (void)!write(ready[1], &ok, 1);
  });
  char bound = 0;
  ASSERT_EQ(read(ready[0], &bound, 1), 1);
  ASSERT_EQ(bound, 'y');
  const auto refused = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EBUSY);
  EXPECT_STREQ(refused.error().where, "another user holds the group's name");
  close(ready[0]);
  close(ready[1]);
}

TEST_F(XdpGroupEntering, AnotherUserGetsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  auto group = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_TRUE(group);
  for (const bool other : {true, false}) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    Process joiner(unique_name(), 1, [&] {
      if (other && setresuid(65534, 65534, 65534) != 0) _exit(1);
      const int fd = raw_socket(name_, 0, false);
      (void)!write(told[1], fd >= 0 ? "y" : "n", 1);
      std::byte bytes[64];
      UniqueFd fds[kMaxSentFds];
      timespec bound{5, 0};
      fd_set set;
      FD_ZERO(&set);
      FD_SET(fd, &set);
      pselect(fd + 1, &set, nullptr, nullptr, &bound, nullptr);
      const Received got = receive_message(fd, bytes, fds, 0);
      const char result = got.bytes > 0 && got.fds > 0 ? 'y' : got.bytes == 0 ? '0' : 'n';
      (void)!write(told[1], &result, 1);
    });
    char c = 0;
    ASSERT_EQ(read(told[0], &c, 1), 1);
    ASSERT_EQ(c, 'y') << "connected";
    EXPECT_TRUE((*group)->serve());
    ASSERT_EQ(read(told[0], &c, 1), 1);
    EXPECT_EQ(c, other ? '0' : 'y');
    close(told[0]);
    close(told[1]);
  }
}

TEST_F(XdpGroupEntering, ASilentJoinerHoldsNobodyUp) {
  Process founder(name_);
  ASSERT_EQ(founder.entered().error, 0);
  // They connect, and neither read nor go.
  std::vector<int> stuck;
  for (int i = 0; i < 100; ++i) {
    stuck.push_back(raw_socket(name_, geteuid(), false));
    ASSERT_GE(stuck.back(), 0);
  }
  const Instant began = now();
  const auto joined = Group::enter({.name = name_, .version = 1}, make_memory);
  ASSERT_TRUE(joined) << joined.error().where;
  EXPECT_LT(now() - began, Duration::ms(400));
  for (const int fd : stuck) close(fd);
}

}  // namespace
}  // namespace vireo::xdp::test
