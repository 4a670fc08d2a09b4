// UDP_SEGMENT: one message leaves as several datagrams, all or none.
#include <optional>

#include "stack/wire/parse.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

class Segments : public testing::Test {
 protected:
  void start(const HostOptions& options = {}) {
    h_.emplace(options);
    to_ = {ip("11.0.0.7"), 5000, 0};
    const Endpoint here{h_->address(), 7000, 0};
    const auto u = engine().udp().open(here, {}, false, this, stats_);
    ASSERT_TRUE(u);
    u_ = *u;
    const auto route =
        engine().next_hops().route({.dst = to_.addr, .src = {}, .proto = IpProto::kUdp});
    ASSERT_TRUE(route);
    char byte = 'x';
    const iovec v{&byte, 1};
    ASSERT_TRUE(engine().udp().send(*u_, *route, here, to_, {{&v, 1}}, Doorbell::kNow, h_->now()));
    h_->pass(Duration::ms(10));
    take();
  }
  void TearDown() override {
    if (u_ != nullptr) engine().udp().close(*u_);
  }
  Engine& engine() { return h_->engine(); }
  Result<void> send(std::span<const iovec> data, uint16_t segment) {
    return engine().udp().send_cached(*u_, to_, {data, segment}, Doorbell::kNow, h_->now());
  }
  /// Payloads of the datagrams that have left, whose sums are good.
  std::vector<std::string> take() {
    h_->settle();
    std::vector<std::string> all;
    for (const auto& frame : h_->link().kernel_frames(MemEnd::kB)) {
      const auto f = wire::parse_frame(frame);
      EXPECT_TRUE(f && wire::l4_checksum_ok(f));
      const auto* const text = reinterpret_cast<const char*>(frame.data()) + f.payload_at;
      all.emplace_back(text, f.payload_bytes);
    }
    h_->forget_heard();
    h_->link().kernel_frames(MemEnd::kB).clear();
    return all;
  }

  std::optional<Host> h_;
  Endpoint to_;
  SocketStats stats_;
  UdpFlow* u_ = nullptr;
};

std::string numbered(size_t n) {
  std::string s(n, '\0');
  for (size_t i = 0; i < n; ++i) s[i] = static_cast<char>(i * 7 + i / 256);
  return s;
}

TEST_F(Segments, AreOfThatSizeAndTheLastOfTheRest) {
  start();
  std::string text = numbered(4321);
  const iovec pieces[] = {
      {text.data(), 1}, {text.data(), 0}, {text.data() + 1, 2500}, {text.data() + 2501, 1820}};
  const uint64_t rung = h_->link().stats(MemEnd::kA).doorbells;
  ASSERT_TRUE(send(pieces, 700));
  EXPECT_EQ(h_->link().stats(MemEnd::kA).doorbells, rung + 1);
  const auto got = take();
  ASSERT_EQ(got.size(), 7U);
  std::string all;
  for (const std::string& s : got) {
    EXPECT_EQ(s.size(), &s == &got.back() ? 121U : 700U);
    all += s;
  }
  EXPECT_EQ(all, text);
  EXPECT_EQ(stats_.tx_packets.get(), 8U);
  EXPECT_EQ(stats_.tx_bytes.get(), 1U + 4321U);
}

TEST_F(Segments, LeaveWholeOrNotAtAllWithoutRoomInThePool) {
  start();
  std::string text = numbered(20 * 1000);
  const iovec v{text.data(), text.size()};
  std::vector<PacketRef> held;
  PacketPool& pool = engine().pool();
  while (pool.ready_count() > 15) held.emplace_back(pool.take());
  const auto refused = send({&v, 1}, 1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOBUFS);
  held.resize(held.size() - 10);
  ASSERT_TRUE(send({&v, 1}, 1000));
  EXPECT_EQ(take().size(), 20U) << "of the second alone";
}

TEST_F(Segments, OfAFullRingWaitOrAreLostFromTheEnd) {
  start({.device = {.tx_ring = 8, .tx_time = Duration::ms(1)}});
  std::string text = numbered(20 * 10);
  const iovec v{text.data(), text.size()};
  ASSERT_TRUE(send({&v, 1}, 10)) << "its first has left";
  const auto refused = send({&v, 1}, 10);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EAGAIN);
  h_->pass(Duration::ms(50));
  const auto got = take();
  ASSERT_EQ(got.size(), 8U);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], text.substr(10 * i, 10)) << i;
  EXPECT_GT(h_->stats().tx_ring_full.get(), 0U);
}

TEST_F(Segments, MustFitAPacketThoughTheMessageNeedNot) {
  start();
  std::string text = numbered(3000);
  const iovec all{text.data(), 3000}, two{text.data(), 1473}, one{text.data(), 1472};
  const auto code = [](const Result<void>& r) { return r ? 0 : r.error().code; };
  EXPECT_EQ(code(send({&all, 1}, 1473)), EMSGSIZE);
  EXPECT_EQ(code(send({&two, 1}, 1473)), EMSGSIZE);
  EXPECT_EQ(code(send({&one, 1}, 1473)), EMSGSIZE) << "the kernel decides";
  EXPECT_EQ(code(send({&one, 1}, 1472)), 0);
  EXPECT_EQ(code(send({&all, 1}, 1472)), 0);
  EXPECT_EQ(take().size(), 4U);
}

}  // namespace
}  // namespace vireo::test
