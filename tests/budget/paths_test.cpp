// The paths whose instructions bench/BUDGET.md lists, each as host A goes it: what A's library does
// in 1000 rounds is counted, host B and the wire are not. Under callgrind every path leaves its own
// dump, which bench/budget reads; without it, the frames on the wire show that the path is the one
// meant.
#include <netinet/tcp.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "stack/extra/completions.h"
#include "stack/extra/receive_callback.h"
#include "stack/extra/socket_rings.h"
#include "stack/extra/zero_copy.h"
#include "tests/budget/repeatable.h"
#include "tests/unit/sock/mux.h"

namespace vireo::test {
namespace {

constexpr int kWarmUp = 200, kRounds = 1000;
constexpr size_t kSegment = 1448;  // a full-sized one: 1500 less headers and timestamps
constexpr Duration kHop = Duration::us(10);
constexpr Duration kDelayedAck = Duration::ms(45);  // tcp/tcb.h: an ACK waits for 40 ms

bool g_counts = false;

/// What happens while one lives is counted, once the path is warm.
class Counted {
 public:
  Counted() { toggle(); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { toggle(); }

  static void toggle() {
    if (g_counts) CALLGRIND_TOGGLE_COLLECT;
  }
};

/// What happens from here until A hands its next frame to its device is counted: what its peer
/// waits for.
void count_to_next_frame() {
  at_next_frame(Counted::toggle);
  Counted::toggle();
}

/// Is the turn that follows each round, in which A does what nobody waits for, part of a path?
enum class Books : bool { kLeftOut, kCounted };

/// Frames that the hosts send in each round.
struct Frames {
  uint64_t by_a, by_b;
};

uint64_t sent(MemEnd by) { return wire().wire(by).stats().sent; }

template <class F>
void count(const char* path, Frames frames, F&& round, Books books = Books::kCounted,
           uint32_t warm_up = kWarmUp) {
  const auto whole_round = [&] {
    round();
    turn(hosts().b);
    if (books == Books::kCounted) Counted::toggle();
    turn(hosts().a);
    if (books == Books::kCounted) Counted::toggle();
  };
  for (uint32_t i = 0; i < warm_up; ++i) whole_round();
  const uint64_t a = sent(MemEnd::kA), b = sent(MemEnd::kB);
  CALLGRIND_ZERO_STATS;
  g_counts = true;
  for (int i = 0; i < kRounds; ++i) whole_round();
  g_counts = false;
  CALLGRIND_DUMP_STATS_AT(path);
  EXPECT_EQ(sent(MemEnd::kA) - a, frames.by_a * kRounds);
  EXPECT_EQ(sent(MemEnd::kB) - b, frames.by_b * kRounds);
  std::printf("path: %s, %d rounds\n", path, kRounds);
}

class Paths : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (Host* h : {&hosts().a, &hosts().b}) {
      h->enter();  // an engine keeps to the namespace in which it was made
      const auto engine = h->stack().engine();
      ASSERT_TRUE(engine.has_value());
      // As of a program that has been at work for some milliseconds.
      BiasedLock& lock = (*engine)->lock();
      for (uint32_t i = 0; i <= BiasedLock::kRow; ++i) const LockGuard guard(lock);
      ASSERT_TRUE(lock.is_biased());
    }
    std::printf("made by: %s, vectors of %s\n", VIREO_MADE_BY,
                __builtin_cpu_supports("avx512bw") ? "AVX-512"
                : __builtin_cpu_supports("avx2")   ? "AVX2"
                                                   : "SSE");
  }
  Api a{hosts().a, Side::kVireo};
  Api b{hosts().b, Side::kVireo};
  char bytes_[4096] = {};
  std::vector<std::pair<Api*, int>> opened_;

  static std::optional<Counted> counted_if(bool counts) {
    return counts ? std::optional<Counted>(std::in_place) : std::nullopt;
  }

  int listener(uint16_t port) {
    const int l = a.socket(AF_INET, SOCK_STREAM);
    EXPECT_EQ(a.bind(l, port), 0);
    EXPECT_EQ(a.listen(l), 0);
    return l;
  }
  /// B begins to connect from `from`: its SYN is under way.
  int connect(uint16_t from, uint16_t to) {
    const int c = b.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
    EXPECT_EQ(b.bind(c, from), 0);
    const auto sa = address(a.host(), to);
    EXPECT_EQ(b.connect(c, sockaddr_of(sa), length(sa)), -EINPROGRESS);
    return c;
  }
  void shake_hands() {
    pass(kHop);
    turn(a.host());  // SYN, SYN-ACK
    pass(kHop);
    turn(b.host());  // ACK
    pass(kHop);
  }
  /// {A's, B's}; A has accepted.
  std::pair<int, int> connection(uint16_t port) {
    const int l = listener(port);
    const int theirs = connect(static_cast<uint16_t>(port + 1000), port);
    shake_hands();
    const int ours = a.accept(l);
    EXPECT_TRUE(ours >= 0 && a.is_carried(ours) && b.is_carried(theirs));
    EXPECT_EQ(a.close(l), 0);
    opened_.insert(opened_.end(), {{&a, ours}, {&b, theirs}});
    return {ours, theirs};
  }
  /// What a path has left open: what the table keeps for it is not the heap's to find.
  void TearDown() override {
    for (const auto& [by, fd] : opened_) EXPECT_EQ(by->close(fd), 0);
  }
  void send(Api& by, int fd, size_t n) {
    ASSERT_EQ(by.send(fd, bytes_, n, 0), static_cast<ssize_t>(n));
  }
  /// The way of send() that stack/preload/calls_io.cpp tries first.
  bool joins_held(int fd, size_t n) {
    const Handle h = fd_table().find(fd);
    return sock::may_append_nagled_here(h) && sock::send_nagled(h, bytes_, n, 0);
  }
  void recv(Api& by, int fd, size_t n) {
    ASSERT_EQ(by.recv(fd, bytes_, sizeof bytes_, 0), static_cast<ssize_t>(n));
  }
  /// A asks, B answers, both with `n` bytes.
  void exchange(const char* path, uint16_t port, size_t n) {
    const auto [ours, theirs] = connection(port);
    count(path, {1, 1}, [&] {
      {
        const Counted counted;
        send(a, ours, n);
      }
      pass(kHop);
      recv(b, theirs, n);
      send(b, theirs, n);
      pass(kHop);
      const Counted counted;
      recv(a, ours, n);
    });
  }
};

TEST_F(Paths, RoundTripOfOneByte) { exchange("TCP, 1 byte there and back", 5001, 1); }

TEST_F(Paths, FullSegments) { exchange("TCP, a full-sized segment out and in", 5002, kSegment); }

TEST_F(Paths, PureAckIn) {
  const auto [ours, theirs] = connection(5003);
  count("TCP, a pure ACK in", {1, 1}, [&] {
    send(a, ours, kSegment);
    pass(kHop);
    recv(b, theirs, kSegment);
    pass(kDelayedAck);
    turn(b.host());
    pass(kHop);
    const Counted counted;
    turn(a.host());
  });
}

TEST_F(Paths, Datagrams) {
  const int ours = a.socket(AF_INET, SOCK_DGRAM), theirs = b.socket(AF_INET, SOCK_DGRAM);
  ASSERT_EQ(a.bind(ours, 5004), 0);
  ASSERT_EQ(b.bind(theirs, 5004), 0);
  const std::string text(64, 'x');
  const auto to_a = address(a.host(), 5004);
  count("UDP, 64 bytes in and out", {1, 1}, [&] {
    ASSERT_EQ(b.sendto(theirs, text, to_a), 64);
    pass(kHop);
    {
      sockaddr_storage from;
      iovec v{bytes_, sizeof bytes_};
      msghdr m{};
      m.msg_name = &from;
      m.msg_namelen = sizeof from;
      m.msg_iov = &v;
      m.msg_iovlen = 1;
      const Counted counted;
      ASSERT_EQ(a.recvmsg(ours, m, 0), 64);
      ASSERT_EQ(a.sendto(ours, text, from), 64);
    }
    pass(kHop);
    recv(b, theirs, 64);
  });
  EXPECT_EQ(a.close(ours), 0);
  EXPECT_EQ(b.close(theirs), 0);
}

TEST_F(Paths, AnswerOfOneByte) {
  const auto [ours, theirs] = connection(5007);
  count(
      "TCP, 1 byte: from recv() to the doorbell of the answer", {1, 1},
      [&] {
        send(b, theirs, 1);
        pass(kHop);
        count_to_next_frame();
        recv(a, ours, 1);
        send(a, ours, 1);
        pass(kHop);
        recv(b, theirs, 1);
      },
      Books::kLeftOut);
}

/// As many in flight, acknowledged by one ACK; then the way of those that come.
TEST_F(Paths, StreamOfSmallSegments) {
  constexpr int kSends = 32;
  for (const bool sends : {true, false}) {
    const auto [ours, theirs] = connection(sends ? 5010 : 5011);
    ASSERT_EQ(a.setsockopt(ours, IPPROTO_TCP, TCP_NODELAY, 1), 0);
    ASSERT_EQ(b.setsockopt(theirs, IPPROTO_TCP, TCP_NODELAY, 1), 0);
    const int from = sends ? ours : theirs, to = sends ? theirs : ours;
    Api& sender = sends ? a : b;
    Api& receiver = sends ? b : a;
    const auto stream = [&] {
      {
        const std::optional<Counted> counted = counted_if(sends);
        for (int i = 0; i < kSends; ++i) send(sender, from, 64);
      }
      pass(kHop);
      {
        const std::optional<Counted> counted = counted_if(!sends);
        recv(receiver, to, kSends * 64);
        turn(receiver.host());
      }
      pass(kHop);
      const std::optional<Counted> counted = counted_if(sends);
      turn(sender.host());
    };
    count(sends ? "TCP_NODELAY, 32 sends of 64 bytes on end, and their ACK"
                : "TCP_NODELAY, 32 segments of 64 bytes in, read at once",
          sends ? Frames{kSends, 1} : Frames{1, kSends}, stream, Books::kLeftOut);
  }
}

/// The first leaves, Nagle's algorithm holds the others but for the segment that they fill.
TEST_F(Paths, StreamThatNagleHolds) {
  constexpr int kSends = 32;
  const auto [ours, theirs] = connection(5012);
  count(
      "TCP, 32 sends of 64 bytes on end, held by Nagle", {3, 2},
      [&] {
        {
          const Counted counted;
          for (int i = 0; i < kSends; ++i)
            if (!joins_held(ours, 64)) send(a, ours, 64);
        }
        for (ssize_t left = kSends * 64; left > 0;) {
          pass(kHop);
          const ssize_t n = b.recv(theirs, bytes_, sizeof bytes_, MSG_DONTWAIT);
          if (n > 0) left -= n;
          pass(kDelayedAck);
          turn(b.host());
          pass(kHop);
          turn(a.host());
        }
      },
      Books::kLeftOut);
}

TEST_F(Paths, AnsweredDatagram) {
  const int ours = a.socket(AF_INET, SOCK_DGRAM), theirs = b.socket(AF_INET, SOCK_DGRAM);
  ASSERT_EQ(a.bind(ours, 5008), 0);
  ASSERT_EQ(b.bind(theirs, 5008), 0);
  const auto to_a = address(a.host(), 5008), to_b = address(b.host(), 5008);
  ASSERT_EQ(a.connect(ours, sockaddr_of(to_b), length(to_b)), 0);
  const std::string text(64, 'x');
  count(
      "UDP, 64 bytes: from recv() to the doorbell of the answer", {1, 1},
      [&] {
        ASSERT_EQ(b.sendto(theirs, text, to_a), 64);
        pass(kHop);
        count_to_next_frame();
        recv(a, ours, 64);
        send(a, ours, 64);
        pass(kHop);
        recv(b, theirs, 64);
      },
      Books::kLeftOut);
  EXPECT_EQ(a.close(ours), 0);
  EXPECT_EQ(b.close(theirs), 0);
}

/// The same by each way of the extra API: what is lent is given back after the answer.
class AnswerByExtraApi : public Paths {
 protected:
  void SetUp() override {
    ours_ = a.socket(AF_INET, SOCK_DGRAM);
    theirs_ = b.socket(AF_INET, SOCK_DGRAM);
    opened_.insert(opened_.end(), {{&a, ours_}, {&b, theirs_}});
    ASSERT_EQ(a.bind(ours_, port_), 0);
    ASSERT_EQ(b.bind(theirs_, port_), 0);
    const auto to_b = address(b.host(), port_++);
    ASSERT_EQ(a.connect(ours_, sockaddr_of(to_b), length(to_b)), 0);
    handle_ = fd_table().find(ours_);
  }
  template <class F>
  void answers(const char* path, F&& receive_and_answer, void (*before)(int) = nullptr,
               int argument = 0) {
    const auto to_a = address(a.host(), static_cast<uint16_t>(port_ - 1));
    const std::string text(64, 'x');
    count(
        path, {1, 1},
        [&] {
          a.host().enter();
          if (before != nullptr) before(argument);
          ASSERT_EQ(b.sendto(theirs_, text, to_a), 64);
          pass(kHop - Duration::us(1));
          a.host().enter();
          count_to_next_frame();
          receive_and_answer();
          pass(kHop);
          recv(b, theirs_, 64);
        },
        Books::kLeftOut);
  }
  static vma_recv_callback_retval_t answer(int, size_t, iovec pieces[], vma_info_t*, void* test) {
    auto& t = *static_cast<AnswerByExtraApi*>(test);
    EXPECT_EQ(t.a.send(t.ours_, static_cast<char*>(pieces[0].iov_base), pieces[0].iov_len, 0), 64);
    return VMA_PACKET_DROP;
  }
  static inline uint16_t port_ = 5020;
  int ours_ = -1, theirs_ = -1;
  Handle handle_;
};

TEST_F(AnswerByExtraApi, Callback) {
  ASSERT_TRUE(extra::set_receive_callback(handle_, answer, this).has_value());
  answers("UDP, 64 bytes: from recv() to the doorbell of the answer by a receive callback",
          [&] { ASSERT_EQ(a.recv(ours_, bytes_, sizeof bytes_, MSG_DONTWAIT), -EAGAIN); });
}

TEST_F(AnswerByExtraApi, ZeroCopy) {
  answers("UDP, 64 bytes: from recvfrom_zcopy() to the doorbell of the answer", [&] {
    int flags = MSG_DONTWAIT;
    sockaddr_in from{};
    socklen_t len = sizeof from;
    const auto n = extra::recv_zero_copy(handle_, bytes_, 256, flags,
                                         reinterpret_cast<sockaddr*>(&from), &len);
    ASSERT_TRUE(n.has_value() && *n == 64 && (flags & MSG_VMA_ZCOPY) != 0);
    const auto* const all = reinterpret_cast<const vma_packets_t*>(bytes_);
    ASSERT_EQ(a.send(ours_, static_cast<const char*>(all->pkts[0].iov[0].iov_base), 64, 0), 64);
    ASSERT_TRUE(extra::free_packets(handle_, all->pkts, 1).has_value());
  });
}

TEST_F(AnswerByExtraApi, Completions) {
  int ring = -1;
  ASSERT_TRUE(extra::socket_rings(handle_, {&ring, 1}).has_value());
  // It polls all the time, and asks the kernel now and then only.
  const auto poll = [](int ring_fd) {
    vma_completion_t none[1];
    ASSERT_EQ(extra::poll_completions(ring_fd, none), 0);
  };
  vma_completion_t all[4];
  answers(
      "UDP, 64 bytes: from socketxtreme_poll() to the doorbell of the answer",
      [&] {
        const auto n = extra::poll_completions(ring, all);
        ASSERT_TRUE(n.has_value() && *n == 1 && all[0].packet.total_len == 64);
        ASSERT_EQ(a.send(ours_, static_cast<const char*>(all[0].packet.buff_lst->payload), 64, 0),
                  64);
        ASSERT_TRUE(extra::free_completed(*handle_->stack, {&all[0].packet, 1}).has_value());
      },
      poll, ring);
  EXPECT_EQ(a.close(ring), 0);
}

/// Thirty-two by one call, to the peer; then the way of those that come.
TEST_F(Paths, DatagramsByTheDozen) {
  constexpr unsigned kBatch = 32;
  const int ours = a.socket(AF_INET, SOCK_DGRAM), theirs = b.socket(AF_INET, SOCK_DGRAM);
  ASSERT_EQ(a.bind(ours, 5009), 0);
  ASSERT_EQ(b.bind(theirs, 5009), 0);
  const auto to_a = address(a.host(), 5009), to_b = address(b.host(), 5009);
  ASSERT_EQ(a.connect(ours, sockaddr_of(to_b), length(to_b)), 0);
  ASSERT_EQ(b.connect(theirs, sockaddr_of(to_a), length(to_a)), 0);
  iovec pieces[kBatch];
  mmsghdr batch[kBatch];
  const auto prepare = [&] {
    for (unsigned i = 0; i < kBatch; ++i) {
      pieces[i] = {bytes_ + 64 * i, 64};
      batch[i] = {};
      batch[i].msg_hdr.msg_iov = &pieces[i];
      batch[i].msg_hdr.msg_iovlen = 1;
    }
  };
  for (const bool sends : {true, false}) {
    const int from = sends ? ours : theirs, to = sends ? theirs : ours;
    Api& sender = sends ? a : b;
    Api& receiver = sends ? b : a;
    count(
        sends ? "UDP, 32 datagrams of 64 bytes by sendmmsg()"
              : "UDP, 32 datagrams of 64 bytes by recvmmsg()",
        sends ? Frames{kBatch, 0} : Frames{0, kBatch},
        [&] {
          prepare();
          sender.host().enter();
          const Handle out = fd_table().find(from), in = fd_table().find(to);
          {
            const std::optional<Counted> counted = counted_if(sends);
            ASSERT_EQ(sock::sendmmsg(out, batch, kBatch, 0), int{kBatch});
          }
          pass(kHop);
          receiver.host().enter();
          const std::optional<Counted> counted = counted_if(!sends);
          ASSERT_EQ(sock::recvmmsg(in, batch, kBatch, 0, nullptr), int{kBatch});
        },
        Books::kLeftOut);
  }
  EXPECT_EQ(a.close(ours), 0);
  EXPECT_EQ(b.close(theirs), 0);
}

TEST_F(Paths, EpollWait) {
  const auto [ours, theirs] = connection(5005);
  Mux mux(a);
  const int epoll = mux.create();
  ASSERT_EQ(mux.add(epoll, ours, EPOLLIN, 7), 0);
  // Its list's lock is taken twice a round.
  constexpr uint32_t kWarm = BiasedLock::kRow / 2 + kWarmUp;
  count(
      "epoll_wait, the segment in and its event", {1, 1},
      [&] {
        send(b, theirs, 1);
        pass(kHop);
        {
          epoll_event e[8];
          const Counted counted;
          ASSERT_EQ(mux.wait(epoll, e, 8, -1), 1);
        }
        recv(a, ours, 1);
        send(a, ours, 1);
        pass(kHop);
        recv(b, theirs, 1);
      },
      Books::kCounted, kWarm);
  EXPECT_EQ(mux.close(epoll), 0);
}

/// The ACKs of the SYN-ACK and of the answer ride on what the program does next.
TEST_F(Paths, ConnectAndClose) {
  const int l = b.socket(AF_INET, SOCK_STREAM);
  ASSERT_EQ(b.bind(l, 5009), 0);
  ASSERT_EQ(b.listen(l), 0);
  const auto to_b = address(b.host(), 5009);
  uint16_t from = 30'000;
  count("connect, 1 byte there and back, close", {4, 3}, [&] {
    const int ours = a.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
    ASSERT_EQ(a.bind(ours, from++), 0);
    {
      const Counted counted;
      ASSERT_EQ(a.connect(ours, sockaddr_of(to_b), length(to_b)), -EINPROGRESS);  // SYN
    }
    pass(kHop);
    turn(b.host());  // SYN-ACK
    pass(kHop);
    {
      const Counted counted;
      ASSERT_EQ(a.connect(ours, sockaddr_of(to_b), length(to_b)), 0);
      send(a, ours, 1);
    }
    pass(kHop);
    const int theirs = b.accept(l);
    ASSERT_GE(theirs, 0);
    recv(b, theirs, 1);
    send(b, theirs, 1);
    pass(kHop);
    {
      const Counted counted;
      recv(a, ours, 1);
      ASSERT_EQ(a.close(ours), 0);  // FIN
    }
    pass(kHop);
    recv(b, theirs, 0);
    ASSERT_EQ(b.close(theirs), 0);  // FIN
    pass(kHop);
    {
      const Counted counted;
      turn(a.host());  // ACK
    }
    pass(Duration::s(2));  // TIME-WAIT is over
    turn(b.host());
  });
  EXPECT_EQ(b.close(l), 0);
}

TEST_F(Paths, AcceptAndClose) {
  const int l = listener(5006);
  uint16_t from = 20'000;
  count("accept and close, from SYN to TIME-WAIT", {3, 3}, [&] {
    const int theirs = connect(from++, 5006);
    pass(kHop);
    {
      const Counted counted;
      turn(a.host());  // SYN, SYN-ACK
    }
    pass(kHop);
    turn(b.host());  // ACK
    pass(kHop);
    {
      const Counted counted;
      const int ours = a.accept(l);
      ASSERT_GE(ours, 0);
      ASSERT_EQ(a.close(ours), 0);  // FIN
    }
    pass(kHop);
    recv(b, theirs, 0);
    ASSERT_EQ(b.close(theirs), 0);  // FIN
    pass(kHop);
    {
      const Counted counted;
      turn(a.host());  // ACK
    }
    pass(Duration::s(2));  // TIME-WAIT is over
    turn(b.host());
    turn(a.host());
  });
  EXPECT_EQ(a.close(l), 0);
}

}  // namespace
}  // namespace vireo::test
