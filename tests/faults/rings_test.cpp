// Several rings (VMA_RING_ALLOCATION_LOGIC_RX) on an RDMA device: which socket gets which, that
// each carries its own and nothing of another's, and that all is given back (World's end). Host b
// has them; host a has one.
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "tests/faults/traffic.h"

namespace vireo::test {
namespace {

class SocketRings : public testing::TestWithParam<Backend> {
 protected:
  Shape shape(RingLogic logic, int limit = 0) const {
    return {.backend = GetParam(),
            .rx_frames = 128,
            .tx_frames = 128,
            .arena_bytes = size_t{4} << 20,
            .rings = logic,
            .ring_limit = limit};
  }
};
INSTANTIATE_TEST_SUITE_P(, SocketRings, testing::ValuesIn(kBackends),
                         testing::PrintToStringParamName());

unsigned ring_of(int fd) { return fd_table().find(fd)->engine.load()->id().value(); }
/// Of b's device; one that strides has a pair to send and another to receive.
unsigned queues(World& w) {
  const softnic_objects o = softnic_objects_of(w.nic(1));
  return o.pairs - o.work_queues;
}
uint64_t received(World& w, unsigned ring) {
  return w.stack(1).stats().engines[ring].rx_packets.get();
}
uint64_t sent(World& w, unsigned ring) { return w.stack(1).stats().engines[ring].tx_packets.get(); }

/// A thread of host b that lives until it is told to end, and does one thing at a time.
class Worker {
 public:
  explicit Worker(World& w) : w_(w) {}
  ~Worker() {
    tell({});
    thread_.join();
  }
  template <class F>
  auto operator()(F&& what) {
    decltype(what()) result;
    std::atomic<bool> done{false};
    tell([&] {
      w_.b().host().enter();
      result = what();
      done.store(true);
      done.notify_one();
    });
    done.wait(false);
    return result;
  }

 private:
  void tell(std::function<void()> what) {
    next_ = std::move(what);
    told_.store(true);
    told_.notify_one();
  }
  void run() {
    for (;;) {
      told_.wait(false);
      told_.store(false);
      const auto what = std::exchange(next_, {});
      if (!what) return;
      what();
    }
  }
  World& w_;
  std::function<void()> next_;
  std::atomic<bool> told_{false};
  std::thread thread_{[this] { run(); }};
};

/// Host a sends `count` datagrams to the port, host b answers each from `fd`.
void exchange(World& w, int fd, uint16_t port, unsigned count) {
  const int client = w.udp(0, 0);
  const auto to = address(w.b().host(), port);
  for (unsigned i = 0; i < count; ++i) {
    const std::string question = std::to_string(port) + ":" + std::to_string(i);
    ASSERT_GT(w.a().sendto(client, question, to), 0);
    sockaddr_storage from{};
    char got[64];
    iovec v{got, sizeof got};
    msghdr m{};
    m.msg_name = &from;
    m.msg_namelen = sizeof from;
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    ssize_t n = -1;
    ASSERT_TRUE(w.run([&] { return (n = w.b().recvmsg(fd, m, MSG_DONTWAIT)) > 0; },
                      [&] { return n > 0; }, Duration::s(1)));
    ASSERT_EQ(std::string(got, static_cast<size_t>(n)), question);
    ASSERT_GT(w.b().sendto(fd, question, from), 0);
    std::string answer;
    ASSERT_TRUE(
        w.run([&] { return !(answer = w.a().recv(client, 64, MSG_DONTWAIT)).starts_with('!'); },
              [&] { return answer == question; }, Duration::s(1)));
  }
  w.close(0, client);
}

TEST_P(SocketRings, ThereIsOneIfNothingIsAskedFor) {
  World w(shape(RingLogic::kInterface));
  const int one = w.udp(1, 7001), two = w.udp(1, 7002);
  EXPECT_EQ(ring_of(one), 0U);
  EXPECT_EQ(ring_of(two), 0U);
  EXPECT_EQ(w.stack(1).engine_count(), 1U);
  EXPECT_EQ(queues(w), 1U);
}

TEST_P(SocketRings, EachSocketHasItsOwnAndCarriesItsOwn) {
  World w(shape(RingLogic::kSocket));
  int fd[4];
  for (unsigned i = 0; i < 4; ++i) {
    fd[i] = w.udp(1, static_cast<uint16_t>(7001 + i));
    EXPECT_EQ(ring_of(fd[i]), i);
  }
  EXPECT_EQ(queues(w), 4U);
  for (unsigned i = 0; i < 4; ++i) {
    exchange(w, fd[i], static_cast<uint16_t>(7001 + i), 10 * (i + 1));
    EXPECT_EQ(received(w, i), 10 * (i + 1));
    EXPECT_EQ(sent(w, i), 10 * (i + 1));
  }
}

TEST_P(SocketRings, AListenersChildrenStayWithIt) {
  World w(shape(RingLogic::kSocket));
  const int first = w.listener(1, 7001), second = w.listener(1, 7002);
  for (const int l : {first, second}) {
    const auto port = static_cast<uint16_t>(l == first ? 7001 : 7002);
    const int c = w.begin_connect(0, port);
    int s = -1;
    ASSERT_TRUE(w.run([&] { return (s = w.b().accept(l, SOCK_NONBLOCK)) >= 0; },
                      [&] { return s >= 0; }, Duration::s(1)));
    w.keep(1, s);
    EXPECT_EQ(ring_of(s), ring_of(l));
    EXPECT_GT(w.a().send(c, "hello"), 0);
    std::string got;
    ASSERT_TRUE(w.run([&] { return !(got = w.b().recv(s, 64, MSG_DONTWAIT)).starts_with('!'); },
                      [&] { return got == "hello"; }, Duration::s(1)));
  }
  EXPECT_NE(ring_of(first), ring_of(second));
}

TEST_P(SocketRings, AllTrafficByRingsOfSockets) {
  World w(shape(RingLogic::kSocket, 6));
  Traffic t(w);
  t.add_all(200'000, 40);
  t.finish(Duration::s(20));
  EXPECT_GT(w.stack(1).engine_count(), 3U);
  EXPECT_LE(w.stack(1).engine_count(), 6U);
}

TEST_P(SocketRings, OneMultiplexerSeesAllRings) {
  World w(shape(RingLogic::kSocket));
  const int one = w.udp(1, 7001), two = w.udp(1, 7002);
  ASSERT_NE(ring_of(one), ring_of(two));
  const int client = w.udp(0, 0);
  pollfd fds[2] = {{one, POLLIN, 0}, {two, POLLIN, 0}};
  const timespec soon{1, 0};
  for (unsigned round = 0; round < 4; ++round) {
    const unsigned to = round % 2;
    // The one asleep is woken by whichever device has it.
    w.while_asleep([&] {
      w.a().sendto(client, "x", address(w.b().host(), static_cast<uint16_t>(7001 + to)));
    });
    w.b().host().enter();
    w.begin_call();
    const auto n = sock::poll(fds, &soon, nullptr);
    ASSERT_TRUE(n.has_value());
    ASSERT_EQ(*n, 1) << round;
    EXPECT_LT(w.slept(), Duration::ms(500));
    EXPECT_EQ(fds[to].revents, POLLIN);
    EXPECT_EQ(w.b().recv(fds[to].fd, 64, MSG_DONTWAIT), "x");
  }
}

TEST_P(SocketRings, AThreadHasOne) {
  World w(shape(RingLogic::kThread));
  Worker x(w), y(w);
  const int x1 = x([&] { return w.udp(1, 7001); });
  const int y1 = y([&] { return w.udp(1, 7002); });
  const int x2 = x([&] { return w.listener(1, 7003); });
  const int y2 = y([&] { return w.listener(1, 7004); });
  EXPECT_EQ(ring_of(x1), ring_of(x2));
  EXPECT_EQ(ring_of(y1), ring_of(y2));
  EXPECT_NE(ring_of(x1), ring_of(y1));
  exchange(w, x1, 7001, 5);
  EXPECT_EQ(received(w, ring_of(x1)), 5U);
  EXPECT_EQ(received(w, ring_of(y1)), 0U);
}

TEST_P(SocketRings, TheRingOfAThreadThatEndedIsTheNextOnesAfterItsSockets) {
  World w(shape(RingLogic::kThread));
  const int mine = w.udp(1, 7001);
  int its = -1;
  {
    Worker x(w);
    its = x([&] { return w.udp(1, 7002); });
  }
  EXPECT_EQ(ring_of(mine), 0U);
  EXPECT_EQ(ring_of(its), 1U);
  w.pass(Duration::s(2));
  Worker y(w);
  const int third = y([&] { return w.udp(1, 7003); });
  EXPECT_EQ(ring_of(third), 2U) << "it has a socket still";
  w.close(1, its);
  w.pass(Duration::s(2));
  Worker z(w);
  const int fourth = z([&] { return w.udp(1, 7004); });
  EXPECT_EQ(ring_of(fourth), 1U);
  exchange(w, fourth, 7004, 3);
  EXPECT_EQ(w.stack(1).engine_count(), 3U);
}

TEST_P(SocketRings, BeyondTheLimitTheyAreSharedInTurn) {
  World w(shape(RingLogic::kSocket, 2));
  unsigned sockets[2] = {};
  for (uint16_t port = 7001; port <= 7006; ++port) ++sockets[ring_of(w.udp(1, port))];
  EXPECT_EQ(sockets[0], 3U);
  EXPECT_EQ(sockets[1], 3U);
  EXPECT_EQ(queues(w), 2U);
}

TEST_P(SocketRings, TheyAreSharedWhereTheDeviceRefusesOneMore) {
  for (const char* what : {"memory", "pairs"}) {
    SCOPED_TRACE(what);
    World w(shape(RingLogic::kSocket));
    const int one = w.udp(1, 7001), two = w.udp(1, 7002);
    EXPECT_NE(ring_of(one), ring_of(two));
    exchange(w, one, 7001, 1);  // host a's device is open, too
    setenv("SOFTNIC_LACKS", what, 1);
    for (uint16_t port = 7003; port <= 7006; ++port) {
      const int fd = w.udp(1, port);
      EXPECT_LT(ring_of(fd), 2U);
      exchange(w, fd, port, 2);
      w.close(1, fd);
    }
    unsetenv("SOFTNIC_LACKS");
    EXPECT_EQ(w.stack(1).engine_count(), 2U);
    EXPECT_EQ(softnic_objects_of(w.nic(1)).contexts, 2U) << "what was opened in vain is left open";
    EXPECT_EQ(w.stack(1).stats().engines[2].pool_size.get(), 0U);
  }
}

// Locked memory: what the process was to have, whatever many rings it makes of it.
TEST_P(SocketRings, ThePacketMemoryIsDividedAmongThem) {
  constexpr uint32_t kPackets = 512;  // of a MiB
  const auto expect_each = [&](RingLogic logic, int limit, uint32_t mib) {
    Shape s = shape(logic, limit);
    s.arena_bytes = size_t{24} << 20;
    World w(s);
    for (uint16_t port = 7001; port <= 7003; ++port) exchange(w, w.udp(1, port), port, 3);
    const unsigned count = w.stack(1).engine_count();
    EXPECT_EQ(count, limit == 0 && logic == RingLogic::kInterface ? 1U : 3U);
    for (unsigned i = 0; i < count; ++i)
      EXPECT_EQ(w.stack(1).stats().engines[i].pool_size.get(), mib * kPackets);
  };
  expect_each(RingLogic::kInterface, 0, 24);
  expect_each(RingLogic::kSocket, 3, 8);
  expect_each(RingLogic::kSocket, 5, 4);  // whole huge pages
  expect_each(RingLogic::kSocket, 0, 4);  // not less
}

// The NIC would give each of two rings every frame for the port.
TEST_P(SocketRings, WhoMaySharePortsShareARing) {
  World w(shape(RingLogic::kSocket));
  const int on = 1;
  const auto sharing = [&](int type, uint16_t port) {
    const int fd = w.keep(1, w.b().socket(AF_INET, type | SOCK_NONBLOCK));
    EXPECT_EQ(w.b().setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
    EXPECT_EQ(w.b().bind(fd, port), 0);
    if (type == SOCK_STREAM) {
      EXPECT_EQ(w.b().listen(fd), 0);
    }
    return fd;
  };
  const int l1 = sharing(SOCK_STREAM, 7001), l2 = sharing(SOCK_STREAM, 7001);
  const int u1 = sharing(SOCK_DGRAM, 7001), u2 = sharing(SOCK_DGRAM, 7001);
  const int other = sharing(SOCK_DGRAM, 7002);
  EXPECT_EQ(ring_of(l1), ring_of(l2));
  EXPECT_EQ(ring_of(u1), ring_of(u2));
  EXPECT_NE(ring_of(l1), ring_of(u1));
  EXPECT_NE(ring_of(other), ring_of(u1));
  w.pass(Duration::s(2));  // what was asked for just now is forgotten, who is bound is not
  EXPECT_EQ(ring_of(sharing(SOCK_STREAM, 7001)), ring_of(l1));
  EXPECT_EQ(ring_of(sharing(SOCK_DGRAM, 7001)), ring_of(u1));
}

// Each has a rule of its own for the group, and the device gives each its copy.
TEST_P(SocketRings, MembersOfAGroupMayHaveARingEach) {
  World w(shape(RingLogic::kSocket));
  constexpr uint16_t kPort = 7001;
  sockaddr_in group{};
  group.sin_family = AF_INET;
  group.sin_port = htons(kPort);
  group.sin_addr.s_addr = inet_addr("239.1.2.3");
  int members[2];
  const int on = 1;
  for (int& fd : members) {
    fd = w.keep(1, w.b().socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK));
    EXPECT_EQ(w.b().setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    w.b().host().enter();
    ASSERT_TRUE(
        sock::bind(fd_table().find(fd), reinterpret_cast<const sockaddr*>(&group), sizeof group));
    const ip_mreq join{group.sin_addr, w.b().host().address()};
    EXPECT_EQ(w.b().setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), 0);
    ASSERT_TRUE(w.b().is_carried(fd));
  }
  EXPECT_NE(ring_of(members[0]), ring_of(members[1]));
  const int client = w.udp(0, 0);
  w.a().host().enter();
  const ip_mreqn out{{}, {}, static_cast<int>(if_nametoindex("eth0"))};
  EXPECT_EQ(w.a().setsockopt(client, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof out), 0);
  sockaddr_storage to{};
  std::memcpy(&to, &group, sizeof group);
  ASSERT_EQ(w.a().sendto(client, "to all", to), 6);
  w.pass(Duration::ms(1));
  for (const int fd : members) {
    EXPECT_EQ(w.b().recv(fd, 64, MSG_DONTWAIT), "to all");
    EXPECT_EQ(w.b().recv(fd, 64, MSG_DONTWAIT), "!EAGAIN");
    EXPECT_EQ(received(w, ring_of(fd)), 1U);
  }
}

TEST_P(SocketRings, AThreadIsAttachedToTheProcessorWhoseRingItHas) {
  World w(shape(RingLogic::kCoreAttach));
  cpu_set_t may;
  ASSERT_EQ(sched_getaffinity(0, sizeof may, &may), 0);
  std::map<int, unsigned> ring_of_processor;
  for (uint16_t port = 7001; port <= 7004; ++port) {
    Worker x(w);
    const int fd = x([&] { return w.udp(1, port); });
    cpu_set_t now;
    x([&] { return sched_getaffinity(0, sizeof now, &now); });
    ASSERT_EQ(CPU_COUNT(&now), 1);
    int processor = 0;
    while (!CPU_ISSET(static_cast<size_t>(processor), &now)) ++processor;
    EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(processor), &may));
    const auto [known, is_new] = ring_of_processor.emplace(processor, ring_of(fd));
    EXPECT_EQ(known->second, ring_of(fd));
  }
  EXPECT_EQ(ring_of_processor.size(), static_cast<size_t>(std::min(4, CPU_COUNT(&may))));
  EXPECT_EQ(w.stack(1).engine_count(), ring_of_processor.size());
}

TEST_P(SocketRings, EachAddressHasOne) {
  World w(shape(RingLogic::kIp));
  const auto bound = [&](uint16_t port, bool any) {
    const int fd = w.keep(1, w.b().socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK));
    EXPECT_EQ(w.b().bind(fd, port, any), 0);
    return ring_of(fd);
  };
  const unsigned every = bound(7001, true), one = bound(7002, false);
  EXPECT_NE(every, one);
  EXPECT_EQ(bound(7003, true), every);
  EXPECT_EQ(bound(7004, false), one);
}

}  // namespace
}  // namespace vireo::test
