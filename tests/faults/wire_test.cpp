// Faults of the wire and of the rings, after which everything goes on: frames lost, frames
// corrupted, the link down, rings full, a device that is slow. TCP repeats what was lost; programs
// are told of nothing.
#include <random>

#include "tests/faults/traffic.h"

namespace vireo::test {
namespace {

constexpr size_t kBulk = 500'000;
constexpr unsigned kRounds = 60;

class WireFaults : public testing::TestWithParam<Backend> {
 protected:
  Shape shape() const { return {.backend = GetParam()}; }
  /// In each turn, on each side, with this chance; harm(device, false) ends it a turn later.
  template <class F>
  auto at_random(World& w, unsigned percent, F harm) {
    return [&w, percent, harm, rng = std::mt19937(7)]() mutable {
      for (int side : {0, 1}) harm(w.nic(side), rng() % 100 < percent);
    };
  }
  static void plug_cable(World& w, bool in) {
    for (int side : {0, 1}) softnic_set_link(w.nic(side), in);
  }
};
INSTANTIATE_TEST_SUITE_P(, WireFaults, testing::ValuesIn(kBackends),
                         testing::PrintToStringParamName());

TEST_P(WireFaults, NoFault) {
  World w(shape());
  Traffic t(w);
  t.add_all(kBulk, kRounds);
  const auto before = softnic_counts_of(w.nic(1)).rx_no_receive;
  t.finish(Duration::s(5));
  EXPECT_EQ(softnic_counts_of(w.nic(1)).rx_no_receive, before);
  for (int side : {0, 1}) EXPECT_EQ(w.engine(side).stats().retransmits.get(), 0U);
}

TEST_P(WireFaults, FramesAreLost) {
  World w(shape());
  Traffic t(w);
  t.add_all(kBulk, kRounds);
  t.finish(Duration::s(200),
           at_random(w, 5, [](ibv_device* d, bool on) { softnic_drop(d, on ? 1 : 0); }));
  EXPECT_GT(w.engine(0).stats().retransmits.get(), 0U);
}

TEST_P(WireFaults, FramesAreLostInRows) {
  World w(shape());
  Traffic t(w);
  t.add_all(kBulk, kRounds);
  t.finish(Duration::s(400),
           at_random(w, 1, [](ibv_device* d, bool on) { softnic_drop(d, on ? 20 : 0); }));
  EXPECT_GT(w.engine(0).stats().retransmits.get(), 0U);
}

// The device sums a corrupted frame and does not say that it is good; then we look ourselves.
TEST_P(WireFaults, FramesAreCorrupted) {
  World w(shape());
  Traffic t(w);
  t.add_all(kBulk, kRounds);
  t.finish(Duration::s(200),
           at_random(w, 5, [](ibv_device* d, bool on) { softnic_corrupt(d, on ? 1 : 0); }));
  EXPECT_GT(w.engine(0).stats().rx_bad_checksum.get(), 0U);
  EXPECT_GT(w.engine(1).stats().rx_bad_checksum.get(), 0U);
}

// Frames of no sense, for the ports and addresses of flows that live: cut short, and noise.
TEST_P(WireFaults, NonsenseIsInjected) {
  World w(shape());
  Traffic t(w);
  t.add_all(kBulk / 2, kRounds);
  std::mt19937 rng(3);
  t.finish(Duration::s(100), [&] {
    std::vector<uint8_t> f = {2,
                              0,
                              0,
                              0,
                              0,
                              2,
                              2,
                              0,
                              0,
                              0,
                              0,
                              1,
                              8,
                              0,
                              0x45,
                              0,
                              0,
                              0,
                              0,
                              0,
                              0x40,
                              0,
                              64,
                              6,
                              0,
                              0,
                              10,
                              77,
                              0,
                              1,
                              10,
                              77,
                              0,
                              2,
                              0,
                              0,
                              static_cast<uint8_t>(9001 >> 8),
                              9001 & 0xff};
    const size_t total = 14 + rng() % 200;
    f.resize(std::max<size_t>(f.size(), total));
    for (size_t i = 38; i < f.size(); ++i) f[i] = static_cast<uint8_t>(rng());
    for (int i = 0; i < 3; ++i) f[14 + rng() % 20] = static_cast<uint8_t>(rng());
    softnic_inject(w.nic(1), f.data(), total);
  });
}

// Retransmission timeouts find the way free again; five seconds are a few of them.
TEST_P(WireFaults, TheLinkGoesDownAndUp) {
  World w(shape());
  Traffic t(w);
  t.add_all(kBulk, kRounds);
  const Instant began = w.now();
  const auto unplugged = [&](int side) { return softnic_counts_of(w.nic(side)).tx_unplugged; };
  const uint64_t before[] = {unplugged(0), unplugged(1)};
  t.finish(Duration::s(60), [&] {
    const Duration at = w.now() - began;
    plug_cable(w, at < Duration::ms(1) || at > Duration::s(5));
  });
  EXPECT_GT(w.now() - began, Duration::s(5));
  for (int side : {0, 1}) {
    EXPECT_GT(unplugged(side), before[side]) << "frames were lost meanwhile";
    EXPECT_FALSE(w.engine(side).ports().all().front()->dead) << "down is not gone";
  }
}

// tcp(7) tcp_retries2: what is not acknowledged for so long ends with ETIMEDOUT; who only waits
// waits on, as on Linux.
TEST_P(WireFaults, TheLinkStaysDown) {
  World w(shape());
  const auto [c, s] = w.connection(9001);
  plug_cable(w, false);
  EXPECT_EQ(w.a().send(c, "lost"), 4);
  w.pass(Duration::s(30 * 60));
  EXPECT_EQ(w.a().recv(c, 10, MSG_DONTWAIT), "!ETIMEDOUT");
  EXPECT_EQ(w.a().recv(c, 10, MSG_DONTWAIT), "") << "the error was told once";
  EXPECT_EQ(w.b().recv(s, 10, MSG_DONTWAIT), "!EAGAIN");
}

// A connection that is being made when the cable comes out, and one that begins without it.
TEST_P(WireFaults, ConnectionsAreMadeWhenTheLinkComesBack) {
  World w(shape());
  const int l = w.listener(1, 9001);
  const int early = w.begin_connect(0, 9001);
  plug_cable(w, false);
  const int late = w.begin_connect(0, 9001);
  w.pass(Duration::s(2));
  EXPECT_EQ(w.a().ready(late), 0);
  plug_cable(w, true);
  EXPECT_TRUE(w.run(
      [] { return false; },
      [&] { return (w.a().ready(late) & POLLOUT) != 0 && (w.a().ready(early) & POLLOUT) != 0; },
      Duration::s(10)));
  w.pass(Duration::ms(10));
  for (int i = 0; i < 2; ++i) w.keep(1, w.b().accept(l, SOCK_NONBLOCK));
}

// Rings of 16: the send ring is full all the time.
TEST_P(WireFaults, SmallRings) {
  World w({.backend = GetParam(), .rx_frames = 16, .tx_frames = 16});
  Traffic t(w);
  t.add_all(kBulk, kRounds);
  t.finish(Duration::s(300));
  EXPECT_GT(w.engine(0).stats().tx_ring_full.get(), 0U);
}

// Nobody takes frames or posts receives on one side for a while: as a program that computes, whose
// helper thread gets no processor.
TEST_P(WireFaults, ReceivesAreNotReplenished) {
  World w({.backend = GetParam(), .rx_frames = 16});
  Traffic t(w);
  t.add_all(kBulk, kRounds);
  const auto before = softnic_counts_of(w.nic(1)).rx_no_receive;
  // b stands still for 100 of 110 ms.
  Instant until;
  bool stopped = false;
  t.finish(Duration::s(300), [&] {
    if (w.now() < until) return;
    stopped = !stopped;
    w.stop(1, stopped);
    until = w.now() + Duration::ms(stopped ? 100 : 10);
  });
  EXPECT_GT(softnic_counts_of(w.nic(1)).rx_no_receive, before);
}

// Frames of the pool: the program reads nothing, and sends all that it may.
TEST_P(WireFaults, TheProgramReadsNothing) {
  World w({.backend = GetParam(), .arena_bytes = size_t{1} << 20});
  const auto [c, s] = w.connection(9001);
  const std::string much(100'000, 'x');
  size_t sent = 0;
  const auto send = [&] {
    const ssize_t n = w.a().send(c, much, MSG_DONTWAIT);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
    return true;
  };
  EXPECT_FALSE(w.run(send, [] { return false; }, Duration::s(5)));
  EXPECT_LT(sent, size_t{2} << 20);
  size_t got = 0;
  EXPECT_TRUE(w.run(
      [&] {
        const std::string part = w.b().recv(s, 65'536, MSG_DONTWAIT);
        if (part.starts_with('!')) return false;
        EXPECT_EQ(part.find_first_not_of('x'), std::string::npos);
        got += part.size();
        return true;
      },
      [&] { return got == sent; }, Duration::s(60)));
}

// A slow doorbell: one request and one frame at a time.
TEST_P(WireFaults, ADeviceThatIsSlow) {
  World w(shape());
  Traffic t(w);
  t.add_all(kBulk / 5, kRounds);
  softnic_hold(w.nic(0), true);
  t.finish(Duration::s(300), [&] { softnic_step(w.nic(0), 1); });
}

// It stands still for three seconds, with everything that was posted; then it goes on.
TEST_P(WireFaults, ADeviceThatStandsStill) {
  World w(shape());
  Traffic t(w);
  t.add_all(kBulk, kRounds);
  const Instant began = w.now();
  bool held = false;
  t.finish(Duration::s(60), [&] {
    const Duration at = w.now() - began;
    const bool hold = at > Duration::ms(1) && at < Duration::s(3);
    if (std::exchange(held, hold) != hold) softnic_hold(w.nic(0), hold);
  });
}

}  // namespace
}  // namespace vireo::test
