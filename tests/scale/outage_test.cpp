// TCP.md 3.10 row 17: every connection has a segment in flight when the network goes away for half
// a minute. The retransmission timers of all come due together, once: after that they are spread. A
// turn of the engine stays short, whoever still reaches us is answered, and all recover once the
// network is back. VIREO_SCALE=100000 chooses the number; 5000 by default.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

constexpr Duration kOutage = Duration::s(30);
constexpr unsigned kTimersPerTurn = 32;  // Engine::kTimersPerPoll
constexpr uint16_t kPort = 80;

IpAddr client(uint32_t n) { return IpAddr::v4(be32(0x0b000000 + n / 50'000)); }
uint16_t client_port(uint32_t n) { return static_cast<uint16_t>(1024 + n % 50'000); }

class Crowd {
 public:
  explicit Crowd(uint32_t count) : h_(options(count)), listening_(h_.listen(kPort, 1024)) {
    for (uint32_t n = 0; n < count; ++n) {
      Peer p(h_, client(n), client_port(n), kPort);
      EXPECT_TRUE(p.connect()) << n;
      TcpFlow* const f = h_.engine().listeners().accept(*listening_.listener);
      f->owner = &owner_;
      f->stats = &owner_.stats;
      flows_.push_back(f);
    }
  }
  Host& host() { return h_; }
  const std::vector<TcpFlow*>& flows() const { return flows_; }

  void all_speak() {
    char bytes[100] = {};
    const iovec v{bytes, sizeof bytes};
    for (TcpFlow* f : flows_) {
      h_.engine().lock().lock();
      EXPECT_EQ(h_.engine().tcp().send(*f, {&v, 1}, false, h_.now()), sizeof bytes);
      h_.engine().unlock();
      h_.link().step(h_.now());
    }
    do {
      h_.heard().clear();
      h_.poll();
    } while (!h_.heard().empty());
  }
  /// One turn; if nothing left in it, time goes on to the next deadline, at most `end`.
  void turn(Instant end) {
    h_.poll();
    if (!h_.heard().empty()) return;
    const Instant due = std::max(h_.engine().next_deadline(), h_.now() + Wheel::kTick);
    h_.link().step(std::min(due, end));
  }
  /// The network brought all that was heard, and the answers back.
  void answer() {
    for (const Heard& x : std::exchange(h_.heard(), {})) {
      if (x.data.empty()) continue;
      Peer p(h_, x.to.addr, x.to.port, kPort);
      p.ts_ecr = x.options.ts_val;
      p.say(kAck, x.ack, x.seq + static_cast<uint32_t>(x.data.size()),
            {.options = p.options(), .poll_now = false});
    }
  }
  size_t waiting() const {
    return static_cast<size_t>(std::ranges::count_if(
        flows_, [](const TcpFlow* f) { return tcp::unacked_bytes(f->tcb) != 0; }));
  }

 private:
  static HostOptions options(uint32_t count) {
    HostOptions o;
    o.arena_bytes = (size_t{count} * 3 * 1024 + (size_t{24} << 20)) >> 21 << 21;
    return o;
  }
  Host h_;
  Listening& listening_;
  Conn owner_;
  std::vector<TcpFlow*> flows_;
};

TEST(Scale, OutageOfAll) {  // TCP.md 3.10 row 17
  const char* const wish = std::getenv("VIREO_SCALE");
  const auto count = std::min(wish == nullptr ? 5'000U : static_cast<uint32_t>(std::atol(wish)),
                              200'000U);  // each holds a frame
  Crowd crowd(count);
  Host& h = crowd.host();
  Peer alive(h, "10.9.9.9", 40'000, kPort);  // another way leads to this one
  ASSERT_TRUE(alive.connect());
  crowd.all_speak();

  const Instant start = h.now(), end = start + kOutage;
  std::map<int64_t, size_t> by_ms;  // frames sent, by millisecond of the outage
  size_t most = 0, sent = 0, herds = 0;
  uint64_t turns = 0;
  size_t together = 0;  // frames in turns behind each of which more was due at once
  bool is_herd = false;
  while (h.now() < end) {
    // Amid a herd, somebody who can be heard speaks: not so often that an ACK may be delayed.
    const auto words = static_cast<size_t>(alive.nxt - (alive.iss + 1));
    const bool speaks = is_herd && words < std::min(herds, size_t{8});
    if (speaks)
      alive.say(kAck | kPsh, alive.nxt, alive.ack,
                {.data = "x", .options = alive.options(), .poll_now = false});
    crowd.turn(end);
    ++turns;
    if (speaks) {
      alive.nxt = alive.nxt + 1;
      const auto heard = alive.hear_all();
      ASSERT_FALSE(heard.empty()) << "not answered in the turn that heard it";
      EXPECT_EQ(heard.back().ack, alive.nxt);
    }
    const size_t frames = h.heard().size();
    h.heard().clear();
    most = std::max(most, frames);
    sent += frames;
    by_ms[(h.now() - start).ms()] += frames;
    // A turn takes a few, and what is left is due at once.
    together = h.engine().next_deadline() <= h.now() ? together + frames : 0;
    const bool was_herd = std::exchange(is_herd, together >= kTimersPerTurn);
    if (is_herd && !was_herd) ++herds;
  }
  const auto peak = [&](int64_t first, int64_t last) {  // in any millisecond of [first, last)
    size_t n = 0;
    for (auto i = by_ms.lower_bound(first); i != by_ms.lower_bound(last); ++i)
      n = std::max(n, i->second);
    return n;
  };
  EXPECT_GE(herds, 1U) << "timers that never came due together prove nothing";
  EXPECT_GE(peak(0, 300), count / 2) << "the first timeout of all";
  EXPECT_LE(peak(300, INT64_MAX), count / 20) << "those that follow are spread by a tenth";
  EXPECT_LE(most, kTimersPerTurn) << "frames that left in one turn";

  Duration rto{};
  for (const TcpFlow* f : crowd.flows()) {
    const tcp::Info i = tcp::info(f->tcb);
    rto = std::max(rto, i.rto);
    ASSERT_GE(i.total_retrans, 5U);
    ASSERT_LE(i.total_retrans, 9U) << "one segment each, and the interval doubles";
    ASSERT_EQ(i.ssthresh, 2U * i.snd_mss) << "however often the timer expired (RFC 5681 §3.1)";
  }
  ASSERT_EQ(crowd.waiting(), count);

  const Instant back = h.now();
  uint64_t turns_after = 0;
  while (h.now() < back + rto * 2 && (++turns_after % 1024 != 0 || crowd.waiting() != 0)) {
    crowd.turn(back + rto * 2);
    crowd.answer();
  }
  h.poll();
  EXPECT_EQ(crowd.waiting(), 0U) << "recovery takes less than two timeouts";
  std::printf(
      "%u connections: %zu retransmissions in %lu turns, at most %zu in one; in a millisecond %zu, "
      "after the first timeout %zu\n",
      count, sent, turns, most, peak(0, 300), peak(300, INT64_MAX));
}

}  // namespace
}  // namespace vireo::test
