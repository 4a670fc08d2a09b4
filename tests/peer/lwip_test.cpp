// lwIP and Vireo's engine, one on each end of a `mem` wire, in one process and in virtual time: an
// independent TCP as the peer, over a wire that loses, reorders and duplicates by seed.
#include <lwip/err.h>

#include <cerrno>
#include <functional>

#include "tests/peer/lwip_host.h"

namespace vireo::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint16_t kPort = 7;

/// What a side says: other bytes each side and seed.
std::string stream(unsigned seed, size_t n) {
  std::string s(n, '\0');
  uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (char& c : s) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    c = static_cast<char>(x);
  }
  return s;
}

HostOptions wire(unsigned seed) {
  MemImpairments harm{.delay = Duration::ms(5), .jitter = Duration::us(200)};
  if (seed % 3 != 0) harm.loss = 0.01 * (seed % 3);
  if (seed % 2 != 0) {
    harm.reorder = 0.02;
    harm.duplicate = 0.01;
  }
  return {.to_host = harm, .from_host = harm, .seed = seed};
}

/// Both hosts, one connection between them, and its two programs.
class Lwip : public ::testing::TestWithParam<unsigned> {
 protected:
  /// Time goes on until `is_done`. @return false: not within `most`.
  bool run(const std::function<bool()>& is_done, Duration most = Duration::s(600)) {
    const Instant end = h_.now() + most;
    while (true) {
      do {
        h_.settle();
        serve();
      } while (lwip_.turn());
      h_.settle();
      if (is_done()) return true;
      if (h_.now() >= end) return false;
      const Instant soon = h_.now() + Wheel::kTick;
      h_.link().step(std::min({end, std::max(h_.engine().next_deadline(), soon),
                               std::max(h_.link().next_event(), h_.now()),
                               std::max(lwip_.next_deadline(), soon)}));
    }
  }
  /// The programs' part: write what there is to write, read what there is to read.
  void serve() {
    if (ours_ != nullptr && ours_->flow != nullptr) {
      if (ours_reads_) got_ += h_.read(*ours_);
      while (!say_.empty() && tcp::can_send(ours_->tcb())) {
        const size_t n = h_.write(*ours_, say_.substr(0, 30'000));
        if (n == 0) break;
        say_.erase(0, n);
      }
    }
    if (theirs_ != nullptr) their_say_.erase(0, lwip_.write(*theirs_, their_say_));
  }
  static tcp::Config config() {
    tcp::Config c;
    c.mss = 1460;
    return c;
  }
  Conn& connect_to(uint16_t port, uint16_t from = 40'000) {
    Conn& c = connected_;
    const Endpoint local{h_.address(), from, 0}, remote{LwipHost::address(), port, 0};
    const auto route = h_.engine().next_hops().route({.dst = remote.addr, .src = local.addr});
    VIREO_ASSERT(route.has_value());
    const auto f =
        h_.engine().tcp().connect(*route, local, remote, config(), {}, &c, c.stats, h_.now());
    VIREO_ASSERT(f.has_value());
    c.flow = *f;
    return c;
  }
  void vireo_connects() {
    lwip_.listen(kPort);
    ours_ = &connect_to(kPort);
    ASSERT_TRUE(run([&] { return theirs_ != nullptr || (theirs_ = lwip_.accept()) != nullptr; }));
    EXPECT_EQ(ours_->state(), tcp::State::kEstablished);
  }
  void lwip_connects() {
    Listening& l = h_.listen(kPort, 16, config());
    theirs_ = &lwip_.connect(kPort);
    ASSERT_TRUE(run([&] {
      if (ours_ == nullptr) ours_ = h_.accept(l);
      return ours_ != nullptr && theirs_->connected;
    }));
  }
  /// 1 MiB each way at once, then both ends close; all bytes are there, and both connections end.
  void mib_each_way() {
    const std::string mine = stream(GetParam(), kMiB), yours = stream(GetParam() + 1000, kMiB);
    say_ = mine;
    their_say_ = yours;
    ASSERT_TRUE(run([&] { return got_.size() == kMiB && theirs_->received.size() == kMiB; }))
        << got_.size() << " and " << theirs_->received.size() << " bytes came";
    EXPECT_TRUE(got_ == yours);
    EXPECT_TRUE(theirs_->received == mine);
    lwip_.close(*theirs_);
    theirs_ = nullptr;
    ASSERT_TRUE(run([&] { return tcp::peer_closed(ours_->tcb()); }));
    EXPECT_EQ(tcp::error(ours_->tcb()), 0);
    h_.close(*ours_);
    ASSERT_TRUE(run([&] { return h_.engine().census().connections == 0; })) << "not over";
    EXPECT_EQ(h_.engine().census().time_waits, 0u) << "who closed second does not wait";
  }

  Conn connected_;
  Host h_{wire(GetParam())};
  LwipHost lwip_{h_, GetParam()};
  Conn* ours_ = nullptr;
  LwipConn* theirs_ = nullptr;
  std::string say_, their_say_, got_;
  bool ours_reads_ = true;
};
INSTANTIATE_TEST_SUITE_P(Seed, Lwip, ::testing::Range(1U, 9U));

TEST_P(Lwip, VireoConnectsAndAMebibyteGoesEachWay) {
  vireo_connects();
  mib_each_way();
}

TEST_P(Lwip, LwipConnectsAndAMebibyteGoesEachWay) {
  lwip_connects();
  mib_each_way();
}

// RFC 9293 §3.6: one side has said all and goes on hearing.
TEST_P(Lwip, VireoClosesItsHalfAndReadsOn) {
  vireo_connects();
  const std::string mine = stream(1, 100'000), yours = stream(2, 300'000);
  say_ = mine;
  ASSERT_TRUE(run([&] { return say_.empty(); }));
  tcp::shutdown_write(ours_->tcb(), h_.now());
  h_.engine().tcp().progress(*ours_->flow, h_.now());
  ASSERT_TRUE(run([&] { return theirs_->ended; }));
  EXPECT_TRUE(theirs_->received == mine);
  their_say_ = yours;
  ASSERT_TRUE(run([&] { return their_say_.empty(); }));
  lwip_.close(*theirs_);
  theirs_ = nullptr;
  ASSERT_TRUE(run([&] { return tcp::peer_closed(ours_->tcb()); }));
  EXPECT_TRUE(got_ == yours);
  EXPECT_EQ(ours_->state(), tcp::State::kTimeWait);
}

TEST_P(Lwip, LwipClosesItsHalfAndReadsOn) {
  lwip_connects();
  const std::string mine = stream(3, 300'000), yours = stream(4, 100'000);
  their_say_ = yours;
  ASSERT_TRUE(run([&] { return their_say_.empty(); }));
  lwip_.half_close(*theirs_);
  ASSERT_TRUE(run([&] { return tcp::peer_closed(ours_->tcb()); }));
  EXPECT_TRUE(got_ == yours);
  say_ = mine;
  ASSERT_TRUE(run([&] { return say_.empty(); }));
  h_.close(*ours_);
  ours_ = nullptr;
  ASSERT_TRUE(run([&] { return theirs_->ended; }));
  EXPECT_TRUE(theirs_->received == mine);
}

TEST_P(Lwip, ResetsEndTheConnectionAtTheOtherEnd) {
  vireo_connects();
  lwip_.abort(*theirs_);
  // The reset may be lost, and lwIP says it again when it is asked.
  ASSERT_TRUE(run([&] {
    if (say_.empty()) say_ = "are you there?";
    return tcp::error(ours_->tcb()) != 0;
  }));
  EXPECT_EQ(tcp::error(ours_->tcb()), ECONNRESET);
  h_.close(*ours_);
  say_.clear();

  ours_ = &connect_to(kPort, 40'001);
  theirs_ = nullptr;
  ASSERT_TRUE(run([&] { return (theirs_ = lwip_.accept()) != nullptr; }));
  h_.link().wire(MemEnd::kA).set_impairments({});  // after this one nothing answers lwIP any more
  h_.close(*ours_, /*reset=*/true);
  ours_ = nullptr;
  ASSERT_TRUE(run([&] { return theirs_->error != 0; }));
  EXPECT_EQ(theirs_->error, ERR_RST);
}

TEST_P(Lwip, APortWithoutAListenerRefuses) {
  Conn& c = connect_to(9);
  ASSERT_TRUE(run([&] { return tcp::error(c.tcb()) != 0; }));
  EXPECT_EQ(tcp::error(c.tcb()), ECONNREFUSED);
}

// RFC 9293 §3.8.6.1: the reader sleeps for minutes; the writer probes, and goes on when it wakes.
TEST_P(Lwip, VireoProbesTheWindowThatLwipShut) {
  vireo_connects();
  const std::string mine = stream(5, kMiB / 2);
  theirs_->reads = false;
  say_ = mine;
  EXPECT_FALSE(run([] { return false; }, Duration::s(200)));
  EXPECT_LE(theirs_->received.size(), 65'535u + 1);
  EXPECT_GT(theirs_->received.size(), 60'000u);
  EXPECT_GT(tcp::shut_doublings(ours_->tcb()), 3) << "the window is not shut";
  lwip_.resume(*theirs_);
  ASSERT_TRUE(run([&] { return theirs_->received.size() == mine.size(); }));
  EXPECT_TRUE(theirs_->received == mine);
}

TEST_P(Lwip, LwipProbesTheWindowThatVireoShut) {
  lwip_connects();
  const std::string yours = stream(6, kMiB / 2);
  ours_reads_ = false;
  their_say_ = yours;
  EXPECT_FALSE(run([] { return false; }, Duration::s(200)));
  EXPECT_FALSE(their_say_.empty());
  // A window that is not whole units of its scale may be shown a unit larger (RFC 7323 §2.4).
  EXPECT_LT(tcp::recv_queue(ours_->tcb()).bytes(), config().rcv_buf + (1U << config().wscale));
  EXPECT_GE(tcp::recv_queue(ours_->tcb()).bytes(), config().rcv_buf - 1460);
  ours_reads_ = true;
  ASSERT_TRUE(run([&] { return got_.size() == yours.size(); }));
  EXPECT_TRUE(got_ == yours);
}

}  // namespace
}  // namespace vireo::test
