// Many idle connections in one engine: memory of each, time to make one, and what an echo on one of
// them costs. VIREO_SCALE=1000000 chooses the number; 20 000 by default.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/scale/meters.h"
#include "tests/scale/steps.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

/// Of the engine, for one connection: its flow, with its Tcb, header and links, and its place in
/// the demux. Less than 1 KiB; what the socket layer has of it is counted in sockets_test.cpp.
constexpr double kMaxBytes = 1023;

/// Connections that nobody uses, and the little that a peer must know to use one.
class Idlers {
 public:
  explicit Idlers(Host& h) : h_(h), listening_(h.listen(80, 1024)) {}

  void connect(uint32_t n) {
    Peer p = peer(n);
    p.timestamps = true;
    ASSERT_TRUE(p.connect()) << n;
    TcpFlow* const f = h_.engine().listeners().accept(*listening_.listener);
    ASSERT_NE(f, nullptr) << n;
    f->owner = &owner_;
    f->stats = &owner_.stats;
    flows_.push_back(f);
    theirs_.push_back(p.irs);
    echoes_.push_back(p.ts_ecr);
  }
  size_t size() const { return flows_.size(); }
  size_t bytes() const {  // of ours, not of the engine
    return flows_.capacity() * sizeof(TcpFlow*) + theirs_.capacity() * sizeof(Seq32) +
           echoes_.capacity() * 4;
  }
  void reserve(size_t n) { flows_.reserve(n), theirs_.reserve(n), echoes_.reserve(n); }

  /// One byte there and back on connection `n`, not used before. @return the engine's instructions.
  uint64_t echo(uint32_t n) {
    Peer p = peer(n);
    p.nxt = p.iss + 1;
    p.ack = theirs_[n] + 1;
    p.ts_ecr = echoes_[n];
    p.say(kAck | kPsh, p.nxt, p.ack, {.data = "x", .options = p.options(), .poll_now = false});
    TcpFlow& f = *flows_[n];
    char byte = 0;
    const iovec v{&byte, 1};
    const Instant now = h_.now();
    h_.engine().lock().lock();
    begin_steps();
    h_.engine().poll(now);
    PacketChain& q = tcp::recv_queue(f.tcb);
    if (!q.empty()) {
      byte = static_cast<char>(q.front()->data()[0]);
      q.trim_front(1);
    }
    h_.engine().tcp().received(f, 1, now);
    h_.engine().tcp().send(f, {&v, 1}, false, now);
    const uint64_t steps = end_steps();
    h_.engine().unlock();
    h_.link().step(now);
    const auto answers = p.hear_all();  // an ACK at once, then the byte
    EXPECT_TRUE(!answers.empty() && answers.back().data == "x");
    p.nxt = p.nxt + 1;
    p.ack = p.ack + 1;
    p.say(kAck);
    h_.heard().clear();
    return steps;
  }

 private:
  Peer peer(uint32_t n) const {
    Peer p(h_, IpAddr::v4(be32(0x0b000000 + n / 50'000)), static_cast<uint16_t>(1024 + n % 50'000),
           80);
    p.iss = Seq32(n * 2654435761u);
    return p;
  }
  Host& h_;
  Listening& listening_;
  Conn owner_;
  std::vector<TcpFlow*> flows_;
  std::vector<Seq32> theirs_;
  std::vector<uint32_t> echoes_;
};

uint64_t median_echo(Idlers& idlers, std::vector<uint32_t> which) {
  std::vector<uint64_t> steps;
  for (const uint32_t n : which) steps.push_back(idlers.echo(n));
  std::ranges::nth_element(steps, steps.begin() + static_cast<ptrdiff_t>(steps.size() / 2));
  return steps[steps.size() / 2];
}

TEST(Scale, IdleConnections) {
  const uint32_t count = scale(20'000);

  uint64_t alone = 0;
  {
    std::vector<uint64_t> steps;
    for (uint32_t n = 0; n < 9; ++n) {  // a fresh connection each time, and no other
      Host fresh;
      Idlers single(fresh);
      single.connect(0);
      steps.push_back(single.echo(0));
    }
    std::ranges::sort(steps);
    alone = steps[4];
  }

  Host h;
  Idlers idlers(h);
  idlers.reserve(count);
  for (uint32_t n = 0; n < 64; ++n) idlers.connect(n);
  const size_t heap_before = heap(), resident_before = resident();
  const int64_t start = cpu_ns();
  for (uint32_t n = 64; n < count; ++n) idlers.connect(n);
  const int64_t end = cpu_ns();
  const double made = count - 64;
  const double bytes = static_cast<double>(heap() - heap_before) / made;
  const double pages = static_cast<double>(resident() - resident_before) / made;
  EXPECT_EQ(h.engine().live_flows(), count + 1);
  EXPECT_GT((h.engine().next_deadline() - h.now()).us(), 0) << "nothing is due for the idle";

  std::vector<uint32_t> which;
  for (uint32_t i = 0; i < 9; ++i) which.push_back(64 + i * ((count - 64) / 9));
  const uint64_t among = median_echo(idlers, which);
  std::printf(
      "%u connections: %.0f bytes of heap each (%.0f resident), %.2f us to make one with "
      "its peer; an echo is %lu instructions, %lu where it is the only one\n",
      count, bytes, pages, static_cast<double>(end - start) / 1e3 / made, among, alone);
  EXPECT_LE(bytes, kMaxBytes);
  EXPECT_LE(static_cast<double>(among), 1.1 * static_cast<double>(alone));
}

}  // namespace
}  // namespace vireo::test
