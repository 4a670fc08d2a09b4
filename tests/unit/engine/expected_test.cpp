// Bytes that go from the frame straight to the program: two engines hear the same frames, one of
// them by a call that waits for the answer, and say and keep the same, whatever the frames are.
#include <random>
#include <tuple>

#include "core/checksum.h"
#include "stack/tcp/tcb.h"
#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

using Frame = std::vector<std::byte>;

/// Makes both checksums right again.
void repair(Frame& f) {
  const auto put = [&](size_t at, be16 v) { std::memcpy(f.data() + at, &v, 2); };
  if (f.size() < 34) return;
  put(24, be16(uint16_t{0}));
  put(24, checksum::finish(checksum::sum(f.data() + 14, 20)));
  const bool is_tcp = f[23] == std::byte{6};
  const size_t l4 = static_cast<size_t>(std::to_integer<unsigned>(f[16]) << 8 |
                                        std::to_integer<unsigned>(f[17])) -
                    20;
  const size_t at = is_tcp ? 50 : 40;
  if (l4 > f.size() - 34 || at + 2 > f.size()) return;
  put(at, be16(uint16_t{0}));
  const uint64_t pseudo = uint64_t{checksum::sum(f.data() + 26, 8)} +
                          checksum::word(std::to_integer<uint8_t>(f[23])) +
                          checksum::word(static_cast<uint16_t>(l4));
  const uint64_t sum = pseudo + checksum::sum(f.data() + 34, l4);
  put(at, is_tcp ? checksum::finish(sum) : checksum::finish_udp(sum));
}

auto picture(const tcp::Tcb& t) {
  return std::tuple(
      std::tuple(t.state, t.rcv_nxt, t.rcv_adv, t.rcv_acked, t.recv_queue.bytes(), t.ts_recent,
                 t.ts_recent_s, t.acks_due, t.quick_acks, t.rcv_mss, t.predictable, t.terse),
      std::tuple(t.snd_una, t.snd_nxt, t.snd_max, t.snd_end, t.snd_edge, t.snd_wl1.value(),
                 t.snd_wl2.value(), t.max_wnd, t.queue.count(), t.queue.next_index()),
      std::tuple(t.rtx_timer, t.backoff, t.retransmits, t.data_segs_out, t.segs_out, t.segs_in,
                 t.data_segs_in, t.bytes_sent, t.interactive, t.cc.cwnd, t.rcv_buf),
      std::tuple(t.rtt.srtt.ns(), t.rtt.rttvar.ns(), t.rtt.rto.ns(), t.rtx_at.ns(), t.rto_at.ns(),
                 t.delack_at.ns(), t.last_sent.ns(), t.last_received.ns(), t.last_ack.ns()),
      std::tuple(t.tuning.echo, t.tuning.copied, t.tuning.rtt.get().ns(), tcp::deadline(t).ns()));
}

/// One of the two.
struct Side {
  explicit Side(bool waits) : is_waiting(waits) {
    Listening& l = h.listen(80);
    EXPECT_TRUE(peer.connect());
    c = h.accept(l);
    peer.hear_all();
  }
  /// A call that receives: what it returns.
  std::string receive(const Frame& f, size_t room) {
    if (!f.empty()) h.inject(f, false);
    std::string got(room, '\0');
    Engine& e = h.engine();
    PacketChain& q = tcp::recv_queue(c->tcb());
    e.acquire();
    uint32_t n = 0;
    if (q.empty()) {
      if (is_waiting) {
        n = e.poll_for(*c->flow, {got.data(), room}, h.now()).bytes;
        direct += n != 0 ? 1 : 0;
      } else {
        e.poll_to_return(h.now());
      }
    }
    if (n == 0) {
      e.finish_deferred();
      while (n < room && !q.empty()) {
        const auto some = static_cast<uint32_t>(std::min<size_t>(room - n, q.front()->length));
        std::memcpy(got.data() + n, q.front()->data(), some);
        q.trim_front(some);
        n += some;
      }
      if (n != 0) e.tcp().received(*c->flow, n, h.now());
    }
    e.unlock();
    got.resize(n);
    return got;
  }
  void send(const std::string& s) {
    const iovec v{const_cast<char*>(s.data()), s.size()};
    h.engine().lock().lock();
    EXPECT_EQ(h.engine().tcp().send(*c->flow, {&v, 1}, false, h.now()), s.size());
    h.engine().unlock();
  }
  /// All that others see.
  auto look() {
    h.engine().acquire();
    h.engine().unlock();
    std::vector<std::tuple<uint32_t, uint32_t, uint16_t, SegFlags, std::string, uint32_t>> heard;
    h.link().step(h.now());
    for (const Heard& s : peer.hear_all())
      heard.emplace_back(s.seq.value(), s.ack.value(), s.window, s.flags, s.data, s.options.ts_ecr);
    return std::tuple(
        heard, picture(c->tcb()),
        std::tuple(h.stats().rx_packets.get(), h.stats().rx_bytes.get(), c->stats.rx_packets.get(),
                   c->stats.rx_bytes.get(), h.stats().rx_bad_checksum.get(),
                   h.stats().rx_malformed.get(), h.stats().rx_unknown_flow.get()));
  }
  /// What comes next, or leaves out some bytes, and acknowledges all.
  Frame frame(const std::string& data, uint32_t ahead = 0) {
    const tcp::Tcb& t = c->tcb();
    return tcp_frame(peer.here, peer.there, kAck | kPsh, t.rcv_seq(t.rcv_nxt) + ahead,
                     t.snd_seq(t.snd_nxt), {.data = data, .options = peer.options()});
  }

  bool is_waiting;
  Host h{{.seed = 1}};
  Peer peer{h, "11.0.0.7", 40'000, 80};
  Conn* c = nullptr;
  unsigned direct = 0;  ///< reads
};

struct Two {
  Side waits{true}, polls{false};

  template <class F>
  void both(F&& f) {
    f(waits);
    f(polls);
  }
  /// @return bytes that the program read of `f`, which both hear.
  size_t hear(const Frame& f, size_t room = 2000) {
    const std::string a = waits.receive(f, room), b = polls.receive(f, room);
    EXPECT_EQ(a, b);
    return a.size();
  }
  void exchange(const std::string& ask, const std::string& answer) {
    both([&](Side& s) { s.send(ask); });
    ASSERT_EQ(waits.look(), polls.look());
    both([](Side& s) { s.h.pass(Duration::us(20)); });
    EXPECT_EQ(hear(waits.frame(answer)), answer.size());
  }
  void warm_up() {
    for (int i = 0; i < 40; ++i) exchange("ask", "answer");
    ASSERT_GT(waits.direct, 15u);
    ASSERT_EQ(waits.look(), polls.look());
  }
};
class Expected : public testing::Test, protected Two {};

TEST_F(Expected, AnswersAndWhatFollowsComeToTheSame) {
  std::mt19937 random(3);
  warm_up();
  unsigned direct = waits.direct;
  for (int step = 0; step < 4'000; ++step) {
    const std::string text(1 + random() % (random() % 8 == 0 ? 1400 : 40),
                           static_cast<char>('a' + step % 26));
    switch (random() % 16) {
      case 0:  // more than is asked for, or than fits
        both([&](Side& s) { s.send("ask"); });
        hear(waits.frame(text), 1 + random() % 20);
        hear({});
        break;
      case 1:  // nothing is said for it
        both([&](Side& s) { s.send("ask"); });
        hear(waits.frame(text));
        both([&](Side& s) { s.h.pass(Duration::ms(2)); });
        break;
      case 2:  // what lies ahead first
        both([&](Side& s) { s.send("ask"); });
        hear(waits.frame(text, 7));
        hear(waits.frame("seven.."));
        break;
      case 3: {  // twice
        both([&](Side& s) { s.send("ask"); });
        const Frame f = waits.frame(text);
        hear(f);
        hear(f);
        break;
      }
      case 4:  // the program sends more than a lone segment
        both([&](Side& s) { s.send(std::string(3000, 'x')); });
        hear(waits.frame(text));
        break;
      case 5:
        both([](Side& s) { s.h.pass(Duration::us(300)); });
        break;
      case 6:
        both([&](Side& s) { ++s.peer.ts_val; });
        break;
      default:
        exchange("ask", text);
    }
    ASSERT_EQ(waits.look(), polls.look()) << "step " << step;
    if (HasFailure()) FAIL() << "step " << step;
  }
  EXPECT_GT(waits.direct - direct, 1'000u);
}

/// The frame with one bit turned goes where it goes in a call that does not wait.
TEST(ExpectedBits, NoFrameButTheAnswerIsTaken) {
  unsigned taken = 0;
  constexpr size_t kBytes = 66 + 6, kFlags = 47;
  for (const bool repairs : {false, true}) {
    for (size_t byte = 0; byte < kBytes; ++byte) {
      Two two;
      two.warm_up();
      for (unsigned bit = 0; bit < 8; ++bit) {
        two.both([&](Side& s) { s.send("ask"); });
        Frame f = two.waits.frame("answer");
        ASSERT_EQ(f.size(), kBytes);
        f[byte] ^= static_cast<std::byte>(1 << bit);
        if (repairs) repair(f);
        const unsigned before = two.waits.direct;
        two.hear(f);
        taken += two.waits.direct - before;
        const auto where = testing::Message()
                           << "byte " << byte << ", bit " << bit << (repairs ? ", repaired" : "");
        if (!repairs && byte >= 14) {
          EXPECT_EQ(two.waits.direct, before) << where << ": its sums are wrong";
        }
        ASSERT_EQ(two.waits.look(), two.polls.look()) << where;
        const bool is_over = two.polls.c->state() != tcp::State::kEstablished;
        ASSERT_TRUE(!is_over || byte == kFlags) << where;
        if (is_over) break;
        for (int i = 0; i < 3; ++i) {
          two.both([&](Side& s) { s.send("ask"); });
          two.hear(two.waits.frame("answer"));
          ASSERT_EQ(two.waits.look(), two.polls.look()) << where;
        }
      }
    }
  }
  EXPECT_GT(taken, 8u * 6) << "of other text, times or windows are answers, too";
}

TEST_F(Expected, IsAcknowledgedThoughTheProgramSaysNothing) {
  warm_up();
  waits.send("ask");
  waits.look();
  const unsigned before = waits.direct;
  EXPECT_EQ(waits.receive(waits.frame("answer"), 100), "answer");
  ASSERT_EQ(waits.direct, before + 1);
  Host& h = waits.h;
  EXPECT_LE(h.engine().next_deadline(), h.now() + Duration::ms(1));
  const Instant until = h.now() + Duration::ms(3);
  while (h.now() < until) {  // as the helper polls
    h.link().step(h.now() + Duration::us(100));
    ASSERT_TRUE(h.engine().try_acquire());
    h.engine().poll_for_helper(h.now());
    h.engine().unlock();
    h.link().step(h.now());
  }
  const auto acks = waits.peer.hear_all();
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].ack, waits.c->tcb().rcv_seq(waits.c->tcb().rcv_nxt));
}

TEST_F(Expected, GoesToTheCallersRoomOnlyIfThereIsEnough) {
  warm_up();
  waits.send("ask");
  const unsigned before = waits.direct;
  EXPECT_EQ(waits.receive(waits.frame("answer"), 5), "answe");
  EXPECT_EQ(waits.direct, before);
  EXPECT_EQ(waits.receive({}, 5), "r");
}

// ---- datagrams

class ExpectedDatagram : public testing::Test {
 protected:
  Host h;
  const FrameSpec spec{.from = {ip("11.0.0.7"), 5000, 0}, .to = {h.address(), 7000, 0}};
  SocketStats stats;
  UdpFlow* flow = nullptr;
  unsigned direct = 0;

  void SetUp() override {
    const auto u = h.engine().udp().open(spec.to, spec.from, false, this, stats);
    ASSERT_TRUE(u);
    flow = *u;
  }
  void TearDown() override { h.engine().udp().close(*flow); }
  /// What a call returns for it; nullopt: it went on waiting.
  std::optional<std::string> receive(const Frame& f, size_t room = 2000) {
    h.inject(f, false);
    std::string got(room, '\0');
    h.engine().acquire();
    const uint32_t n = h.engine().poll_for(*flow, {got.data(), room}, h.now()).bytes;
    h.engine().unlock();
    direct += n != 0 ? 1 : 0;
    if (n != 0) {
      EXPECT_TRUE(flow->queue.empty());
      return got.substr(0, n);
    }
    if (flow->queue.empty()) return std::nullopt;
    const PacketRef p = flow->queue.pop_front();
    UdpFlows::received(*flow, *p);
    return std::string(reinterpret_cast<const char*>(p->data()), p->length);
  }
  static Bytes bytes(const std::string& s) {
    Bytes b(s.size());
    if (!s.empty()) std::memcpy(b.data(), s.data(), s.size());
    return b;
  }
};

TEST_F(ExpectedDatagram, OfEveryLength) {
  for (size_t n = 0; n <= 1472; ++n) {
    std::string text(n, '\0');
    for (size_t i = 0; i < n; ++i) text[i] = static_cast<char>(i * 7 + n);
    EXPECT_EQ(receive(build_frame(spec, bytes(text))), text) << n;
    EXPECT_EQ(direct, n) << "but for the empty one";
  }
  EXPECT_EQ(stats.rx_packets.get(), 1473u);
}

TEST_F(ExpectedDatagram, LongerThanTheRoomWaitsInTheQueue) {
  EXPECT_EQ(receive(build_frame(spec, bytes("longer")), 5), "longer");
  EXPECT_EQ(direct, 0u);
}

TEST_F(ExpectedDatagram, WithoutAChecksum) {
  Frame f = build_frame(spec, bytes("none"));
  f[40] = f[41] = std::byte{};
  EXPECT_EQ(receive(f), "none");
  EXPECT_EQ(direct, 1u);
}

TEST_F(ExpectedDatagram, NoOtherIsTaken) {
  const std::string text = "sixteen bytes...";
  for (const bool repairs : {false, true}) {
    const Frame whole = build_frame(spec, bytes(text));
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      Frame f = whole;
      f[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      if (repairs) repair(f);
      const auto got = receive(f);
      const size_t at = bit / 8;
      if (!repairs && at >= 14) {
        EXPECT_FALSE(got) << "bit " << bit;
      } else if (at >= 42) {
        ASSERT_TRUE(got) << "bit " << bit;
        std::string turned = text;
        turned[at - 42] = static_cast<char>(turned[at - 42] ^ 1 << bit % 8);
        EXPECT_EQ(*got, turned);
      } else if (got) {
        EXPECT_EQ(*got, text.substr(0, got->size())) << "bit " << bit;
      }
      EXPECT_EQ(receive(whole), text) << "bit " << bit;
    }
  }
}

TEST_F(ExpectedDatagram, OfTwoSocketsGoesTheFullWay) {
  SocketStats others;
  const auto other = h.engine().udp().open(spec.to, spec.from, false, &others, others);
  ASSERT_TRUE(other);
  EXPECT_EQ(receive(build_frame(spec, bytes("for the younger"))), std::nullopt);
  EXPECT_EQ((*other)->queue.bytes(), 15u);
  EXPECT_EQ(direct, 0u);
  h.engine().udp().close(**other);
  EXPECT_EQ(receive(build_frame(spec, bytes("alone again"))), "alone again");
  EXPECT_EQ(direct, 1u);
}

}  // namespace
}  // namespace vireo::test
