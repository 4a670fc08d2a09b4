// SO_TIMESTAMPING of sockets that go by an RDMA device: the third time is the device's. Where the
// device tells none, who asks for it stays with the kernel.
#include <linux/net_tstamp.h>

#include <cstdlib>
#include <ctime>
#include <optional>

#include <linux/errqueue.h>  // behind <ctime>, whose timespec it needs

#include "tests/faults/world.h"

namespace vireo::test {
namespace {

constexpr int kByDevice = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
constexpr int kBySystem = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
constexpr int64_t kSlack = 10'000'000;  // nanoseconds between two looks at clocks

int64_t ns_of(const timespec& t) { return t.tv_sec * 1'000'000'000 + t.tv_nsec; }

int64_t realtime() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return ns_of(t);
}

/// What came beside a datagram.
struct Times {
  std::optional<scm_timestamping> stamps;
  std::optional<timespec> nanoseconds;
};

class Timestamps : public testing::TestWithParam<Backend> {
 protected:
  void TearDown() override { unsetenv("SOFTNIC_LACKS"); }
  /// One datagram from `s` of side 0 to `r`, of side 1's port 7000.
  static Times exchange(World& w, int s, int r) {
    const auto to = address(w.b().host(), 7000);
    EXPECT_EQ(w.a().sendto(s, "tick", to), 4);
    EXPECT_TRUE(w.run([] { return false; }, [&] { return (w.b().ready(r) & POLLIN) != 0; },
                      Duration::s(1)));
    char bytes[16];
    alignas(cmsghdr) char control[256];
    iovec v{bytes, sizeof bytes};
    msghdr m{};
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    EXPECT_EQ(w.b().recvmsg(r, m, 0), 4);
    Times out;
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
      EXPECT_EQ(c->cmsg_level, SOL_SOCKET);
      if (c->cmsg_type == SCM_TIMESTAMPING)
        std::memcpy(&out.stamps.emplace(), CMSG_DATA(c), sizeof(scm_timestamping));
      else if (c->cmsg_type == SCM_TIMESTAMPNS)
        std::memcpy(&out.nanoseconds.emplace(), CMSG_DATA(c), sizeof(timespec));
      else
        ADD_FAILURE() << "control message " << c->cmsg_type;
    }
    return out;
  }
  static int ask(World& w, int fd, int what) {
    return w.b().setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, what);
  }
};
INSTANTIATE_TEST_SUITE_P(, Timestamps, testing::ValuesIn(kBackends),
                         testing::PrintToStringParamName());

TEST_P(Timestamps, TheThirdIsTheDevices) {
  World w({.backend = GetParam()});
  const int s = w.udp(0, 7001), r = w.udp(1, 7000);
  EXPECT_FALSE(exchange(w, s, r).stamps);
  ASSERT_EQ(ask(w, r, kByDevice), 0);
  EXPECT_EQ(w.b().getsockopt(r, SOL_SOCKET, SO_TIMESTAMPING), kByDevice);
  ASSERT_TRUE(w.b().is_carried(r));
  const int64_t before = realtime();
  const Times t = exchange(w, s, r);
  const int64_t after = realtime();
  ASSERT_TRUE(t.stamps);
  EXPECT_EQ(ns_of(t.stamps->ts[0]), 0) << "not asked for";
  EXPECT_EQ(ns_of(t.stamps->ts[1]), 0);
  EXPECT_GE(ns_of(t.stamps->ts[2]), before - kSlack);
  EXPECT_LE(ns_of(t.stamps->ts[2]), after + kSlack);
  EXPECT_FALSE(t.nanoseconds);

  const int on = 1;
  ASSERT_EQ(w.b().setsockopt(r, SOL_SOCKET, SO_TIMESTAMPNS, on), 0);
  ASSERT_EQ(ask(w, r, kByDevice | kBySystem), 0);
  const Times both = exchange(w, s, r);
  ASSERT_TRUE(both.stamps && both.nanoseconds);
  EXPECT_GE(ns_of(both.stamps->ts[2]), after - kSlack);
  EXPECT_GE(ns_of(both.stamps->ts[0]), ns_of(both.stamps->ts[2]) - kSlack);
  EXPECT_EQ(ns_of(both.stamps->ts[0]), ns_of(*both.nanoseconds));

  ASSERT_EQ(ask(w, r, 0), 0);
  EXPECT_FALSE(exchange(w, s, r).stamps);
  EXPECT_TRUE(w.b().is_carried(r));
}

TEST_P(Timestamps, AskedForBeforeThereIsAPort) {
  World w({.backend = GetParam(), .stamps = StampTime::kRaw});
  softnic_set_clock(25'000'000'000, 0);  // 100 s
  const int s = w.udp(0, 7001);
  const int r = w.keep(1, w.b().socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK));
  ASSERT_EQ(ask(w, r, kByDevice), 0);
  ASSERT_EQ(w.b().bind(r, 7000), 0);
  ASSERT_TRUE(w.b().is_carried(r));
  const Times t = exchange(w, s, r);
  ASSERT_TRUE(t.stamps);
  EXPECT_GE(t.stamps->ts[2].tv_sec, 100);
  EXPECT_LT(t.stamps->ts[2].tv_sec, 100 + 3600) << "the device's count, and no system's time";
  softnic_set_clock(0, 0);
}

/// The kernel's driver does not stamp either, so there is nothing to leave for.
TEST_P(Timestamps, WithoutAClockThereIsNone) {
  setenv("SOFTNIC_LACKS", "stamps", 1);
  World w({.backend = GetParam()});
  const int s = w.udp(0, 7001), r = w.udp(1, 7000);
  ASSERT_EQ(ask(w, r, kByDevice), 0);
  ASSERT_TRUE(w.b().is_carried(r));
  EXPECT_FALSE(exchange(w, s, r).stamps);
  const int early = w.keep(1, w.b().socket(AF_INET, SOCK_DGRAM));
  ASSERT_EQ(ask(w, early, kByDevice | kBySystem), 0);
  ASSERT_EQ(w.b().bind(early, 7002), 0);
  EXPECT_TRUE(w.b().is_carried(early));
}

/// Software's times need no device.
TEST_P(Timestamps, OthersThanTheDevices) {
  setenv("SOFTNIC_LACKS", "stamps", 1);
  World w({.backend = GetParam()});
  const int s = w.udp(0, 7001), r = w.udp(1, 7000);
  ASSERT_EQ(ask(w, r, kBySystem), 0);
  ASSERT_TRUE(w.b().is_carried(r));
  const int64_t before = realtime();
  const Times t = exchange(w, s, r);
  ASSERT_TRUE(t.stamps);
  EXPECT_GE(ns_of(t.stamps->ts[0]), before);
  EXPECT_EQ(ns_of(t.stamps->ts[2]), 0);
  ASSERT_EQ(ask(w, r, SOF_TIMESTAMPING_SOFTWARE), 0);
  EXPECT_FALSE(exchange(w, s, r).stamps) << "nothing there to be told of";
  ASSERT_EQ(ask(w, r, kBySystem | SOF_TIMESTAMPING_TX_SOFTWARE), 0);
  EXPECT_TRUE(w.b().is_carried(r));
}

}  // namespace
}  // namespace vireo::test
