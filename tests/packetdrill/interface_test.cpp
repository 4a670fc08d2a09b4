// The shared object, loaded as packetdrill loads it: handshake, data, close, time, calls that wait,
// without packetdrill. In a network namespace of its own, as run.py gives to each script.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/packetdrill/interface.h"

namespace {

class Packetdrill : public ::testing::Test {
 protected:
  void SetUp() override {
    if (unshare(CLONE_NEWNET) != 0) GTEST_SKIP() << "needs root";
    library_ = dlopen(VIREO_PACKETDRILL, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    const auto init = reinterpret_cast<decltype(&packetdrill_interface_init)>(
        dlsym(library_, "packetdrill_interface_init"));
    ASSERT_NE(init, nullptr);
    init(nullptr, &t);
  }
  void TearDown() override {
    if (t.free != nullptr) t.free(t.userdata);
  }
  /// A connection from 192.0.2.1:1234 whose handshake took 100 ms: {it, its listener}. The peer's
  /// next byte is 101, ours 1 behind `iss`.
  int accepted(uint32_t& iss) {
    void* const u = t.userdata;
    const int fd = t.socket(u, AF_INET, SOCK_STREAM, IPPROTO_TCP);
    EXPECT_GE(fd, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_port = htons(8080);
    own.sin_addr.s_addr = htonl(0xc0a80007);
    EXPECT_EQ(t.bind(u, fd, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    EXPECT_EQ(t.listen(u, fd, 1), 0);
    in(0x02, 100, 0);
    const Out syn = out();
    EXPECT_EQ(syn.flags, 0x12);
    EXPECT_EQ(syn.ack, 101u);
    EXPECT_EQ(t.usleep(u, 100'000), 0);
    in(0x10, 101, syn.seq + 1);
    iss = syn.seq;
    return t.accept(u, fd, nullptr, nullptr);
  }
  double now() {
    timeval v{};
    t.gettimeofday(t.userdata, &v, nullptr);
    return static_cast<double>(v.tv_sec) + static_cast<double>(v.tv_usec) * 1e-6;
  }
  /// An IPv4 packet from 192.0.2.1:1234 to 192.168.0.7:8080; checksums are not looked at.
  void in(uint8_t flags, uint32_t seq, uint32_t ack, size_t payload = 0) {
    std::vector<uint8_t> b(40 + payload);
    b[0] = 0x45;
    b[2] = static_cast<uint8_t>(b.size() >> 8);
    b[3] = static_cast<uint8_t>(b.size());
    b[9] = 6;
    const uint8_t from[] = {192, 0, 2, 1}, to[] = {192, 168, 0, 7};
    std::memcpy(&b[12], from, 4);
    std::memcpy(&b[16], to, 4);
    put(&b[20], 1234U << 16 | 8080);
    put(&b[24], seq);
    put(&b[28], ack);
    put(&b[32], 0x50000000U | uint32_t{flags} << 16 | 0xffff);
    ASSERT_EQ(t.netdev_send(t.userdata, b.data(), b.size()), 0);
  }
  struct Out {
    uint8_t flags;
    uint32_t seq, ack;
    size_t payload;
    long long usecs;
  };
  Out out() {
    uint8_t b[65536];
    size_t n = sizeof b;
    long long usecs = 0;
    EXPECT_EQ(t.netdev_receive(t.userdata, b, &n, &usecs), 0);
    if (n < 40) return {};
    return {b[33], get(b + 24), get(b + 28), n - 20 - (b[32] >> 4) * 4U, usecs};
  }
  static void put(uint8_t* p, uint32_t v) {
    for (int i = 0; i < 4; ++i) p[i] = static_cast<uint8_t>(v >> (24 - 8 * i));
  }
  static uint32_t get(const uint8_t* p) {
    return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
  }

  void* library_ = nullptr;
  PacketdrillInterface t{};
};

TEST_F(Packetdrill, AcceptReadWriteClose) {
  void* const u = t.userdata;
  uint32_t iss = 0;
  const int c = accepted(iss);
  ASSERT_GE(c, 0);
  in(0x18, 101, iss + 1, 700);
  EXPECT_EQ(out().ack, 801u);
  char bytes[1000];
  EXPECT_EQ(t.read(u, c, bytes, sizeof bytes), 700);
  EXPECT_EQ(t.recv(u, c, bytes, sizeof bytes, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(t.write(u, c, bytes, 1000), 1000);
  const Out data = out();  // both segments at once: no MSS option, so 536 and 464
  EXPECT_EQ(data.payload, 1000u);
  const Out again = out();  // nobody acknowledges: time goes on to the retransmission
  EXPECT_EQ(again.seq, data.seq);
  EXPECT_NEAR(static_cast<double>(again.usecs - data.usecs), 300'000, 1'000);
  in(0x10, 801, data.seq + 1000);
  EXPECT_EQ(t.close(u, c), 0);
  EXPECT_EQ(out().flags, 0x11);
  timeval a{}, b{};
  t.gettimeofday(u, &a, nullptr);
  t.usleep(u, 2'000'000);
  t.gettimeofday(u, &b, nullptr);
  EXPECT_GE(b.tv_sec - a.tv_sec, 2);
}

/// As packetdrill plays `+0...0.2 read(...)`: one thread is in the call, the other goes on.
TEST_F(Packetdrill, AReadWaitsInVirtualTime) {
  void* const u = t.userdata;
  uint32_t iss = 0;
  const int c = accepted(iss);
  const double start = now();
  std::atomic<double> end = 0;
  std::thread reader([&] {
    char bytes[100];
    EXPECT_EQ(t.read(u, c, bytes, sizeof bytes), 10);
    end = now();
  });
  t.usleep(u, 200'000);
  EXPECT_EQ(end, 0);
  in(0x18, 101, iss + 1, 10);
  reader.join();
  EXPECT_NEAR(end - start, 0.2, 0.001);
  t.close(u, c);
}

TEST_F(Packetdrill, ATimeoutIsOfVirtualTime) {  // socket(7) SO_RCVTIMEO, epoll_wait(2)
  void* const u = t.userdata;
  uint32_t iss = 0;
  const int c = accepted(iss);
  const timeval patience{.tv_sec = 3, .tv_usec = 0};
  EXPECT_EQ(t.setsockopt(u, c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  const int ep = t.epoll_create(u, 1);
  epoll_event e{.events = EPOLLIN, .data = {.u64 = 7}};
  EXPECT_EQ(t.epoll_ctl(u, ep, EPOLL_CTL_ADD, c, &e), 0);
  const double start = now();
  std::atomic<double> end = 0;
  std::thread waiter([&] {
    char bytes[100];
    EXPECT_EQ(t.read(u, c, bytes, sizeof bytes), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(t.epoll_wait(u, ep, &e, 1, 2000), 0);
    end = now();
  });
  t.usleep(u, 10'000'000);
  waiter.join();
  EXPECT_NEAR(end - start, 5, 0.001);
  t.close(u, ep);
  t.close(u, c);
}

TEST_F(Packetdrill, NothingComesIsNoPacket) {
  uint8_t b[2048];
  size_t n = sizeof b;
  long long usecs = 0;
  EXPECT_EQ(t.netdev_receive(t.userdata, b, &n, &usecs), 0);
  EXPECT_EQ(n, 1u);
}

}  // namespace
