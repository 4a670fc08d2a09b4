// The shared object, loaded as packetdrill loads it: handshake, data, close, time, without
// packetdrill.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/packetdrill/interface.h"

namespace {

class Packetdrill : public ::testing::Test {
 protected:
  void SetUp() override {
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
  /// An IPv4 packet from 192.0.2.1:1234 to 192.168.0.1:8080; checksums are not looked at.
  void in(uint8_t flags, uint32_t seq, uint32_t ack, size_t payload = 0) {
    std::vector<uint8_t> b(40 + payload);
    b[0] = 0x45;
    b[2] = static_cast<uint8_t>(b.size() >> 8);
    b[3] = static_cast<uint8_t>(b.size());
    b[9] = 6;
    const uint8_t from[] = {192, 0, 2, 1}, to[] = {192, 168, 0, 1};
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
  const int fd = t.socket(u, AF_INET, SOCK_STREAM, IPPROTO_TCP);
  ASSERT_GE(fd, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(8080);
  EXPECT_EQ(t.bind(u, fd, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
  EXPECT_EQ(t.listen(u, fd, 1), 0);
  in(0x02, 100, 0);
  const Out syn = out();
  EXPECT_EQ(syn.flags, 0x12);
  EXPECT_EQ(syn.ack, 101u);
  EXPECT_EQ(t.usleep(u, 100'000), 0);
  in(0x10, 101, syn.seq + 1);
  const int c = t.accept(u, fd, nullptr, nullptr);
  ASSERT_GE(c, 0);
  in(0x18, 101, syn.seq + 1, 700);
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

TEST_F(Packetdrill, NothingComesIsNoPacket) {
  uint8_t b[2048];
  size_t n = sizeof b;
  long long usecs = 0;
  EXPECT_EQ(t.netdev_receive(t.userdata, b, &n, &usecs), 0);
  EXPECT_EQ(n, 1u);
}

}  // namespace
