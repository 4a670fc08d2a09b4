// The short ways of a lone segment and of its ACK come to what the full ones come to: two
// connections do and hear the same, one by the short ways wherever they are open.
#include <random>

#include "stack/tcp/fast_path/nodelay_segment.h"
#include "stack/tcp/fast_path/predicted.h"
#include "stack/tcp/fast_path/single_segment.h"
#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {
namespace {

/// All of a connection that the wire, the timers or TCP_INFO can tell of.
auto picture(const Tcb& t) {
  return std::tuple(
      std::tuple(t.state, t.rcv_nxt, t.rcv_adv, t.rcv_acked, t.recv_queue.bytes(), t.ts_recent,
                 t.ts_recent_s, t.acks_due, t.quick_acks, t.rcv_mss, t.predictable, t.terse),
      std::tuple(t.snd_una, t.snd_nxt, t.snd_max, t.snd_end, t.snd_edge, t.sacked_out, t.lost_out,
                 t.retrans_out, t.rtx_due, t.snd_wl1.value(), t.snd_wl2.value(), t.max_wnd),
      std::tuple(t.queue.count(), t.probe_due, t.keep_due, t.ack_bare, t.more, t.push,
                 t.interactive, t.write_blocked, t.suspects, t.tlp_due, t.tlp_out, t.partial_acked),
      std::tuple(t.recovery, t.dupacks, t.rtx_timer, t.backoff, t.retransmits, t.keep_probes,
                 t.data_segs_out, t.segs_out, t.segs_in, t.data_segs_in, t.bytes_sent),
      std::tuple(t.cc.cwnd, t.cc.ssthresh, t.rtt.srtt.ns(), t.rtt.rttvar.ns(), t.rtt.min_rtt.ns(),
                 t.rtt.rto.ns(), t.rtx_at.ns(), t.rto_at.ns(), t.delack_at.ns(), t.life_at.ns()),
      std::tuple(t.last_sent.ns(), t.last_received.ns(), t.last_ack.ns(), t.rcv_buf, t.snd_buf,
                 t.delivery.bytes_per_second(), t.delivery.is_app_limited(), deadline(t).ns()));
}

class Lone : public TcpTest {
 protected:
  static void set_up(Peer& p, std::mt19937 choice) {
    p.config.sack = p.config.tlp = true;
    p.config.timestamps = choice() % 2 == 0;
    p.config.window_scaling = choice() % 2 == 0;
    p.config.nodelay = choice() % 2 == 0;
    p.config.congestion = choice() % 2 == 0 ? CcKind::kCubic : CcKind::kReno;
    if (choice() % 4 == 0) p.config.snd_buf = 20'000;
    p.config.rcv_buf_max = 1 << 20;
    p.establish_active();
  }
  /// As TcpFlows::send_single() and send_nodelay(). @return what left; nothing: the short ways are
  /// not open.
  std::vector<Out> send_short(Peer& p, const std::string& s) {
    const bool is_single_in_flight = may_send_single(p.t, s.size(), p.now);
    if (!is_single_in_flight && !may_send_nodelay(p.t, s.size())) return {};
    const StreamOffset at = p.t.snd_end;
    PacketBuf* const b = p.pool.take();
    const uint64_t sum = fill_segment(p.t, b, s.data(), s.size());
    const uint16_t window = window_field(p.t);
    Out o;
    o.seq = static_cast<uint32_t>(at);
    o.ack = static_cast<uint32_t>(p.t.rcv_nxt);
    o.window = window;
    o.data = s;
    if (is_single_in_flight) {
      queue_single(p.t, b, sum);
      sent_single(p.t, window, static_cast<uint32_t>(s.size()), p.now);
      ++sends_;
    } else {
      queue_nodelay(p.t, b, sum);
      sent_nodelay(p.t, window, static_cast<uint32_t>(s.size()), p.now);
      ++next_;
    }
    return {o};
  }
  /// As Receive::take_segment(): what is next in order and acknowledges all.
  void answer(Peer& p, const std::string& s) {
    const std::vector<uint8_t> options =
        p.config.timestamps ? p.ts_options() : std::vector<uint8_t>();
    Segment g = p.make(kAck, static_cast<uint32_t>(p.t.rcv_nxt), static_cast<uint32_t>(p.t.snd_max),
                       s, options);
    const auto length = static_cast<uint32_t>(s.size());
    if (!p.config.timestamps ||
        !answers_single(p.t, wire::segment_numbers(g.seq, g.ack), length, p.ts_val)) {
      input(p.t, std::move(g), p.now);
      return;
    }
    take_predicted<true>(p.t,
                         {.seq = g.seq,
                          .ack = g.ack,
                          .ts_val = p.ts_val,
                          .ts_echo = p.ts_ecr,
                          .length = length,
                          .window = g.window,
                          .has_ts = true},
                         std::move(g.payload), p.now);
    ++answers_;
  }
  int sends_ = 0;
  int next_ = 0;
  int acks_ = 0;
  int answers_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Iss, Lone, ::testing::Range(0, 6));

TEST_P(Lone, WaysComeToTheSame) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Peer by_short(ours(), theirs());
    Peer by_full(ours(), theirs());
    set_up(by_short, std::mt19937(seed));
    set_up(by_full, std::mt19937(seed));
    const auto both = [&](auto&& f) {
      f(by_short);
      f(by_full);
    };
    for (int step = 0; step < 300; ++step) {
      const uint64_t act = random() % 32;
      const uint64_t size = random() % 4 == 0 ? 1 + random() % 1500 : 1 + random() % 100;
      std::vector<Out> a, b;
      if (act < 10) {
        const std::string s = text(static_cast<uint32_t>(size));
        a = send_short(by_short, s);
        if (a.empty()) {
          by_short.write(s);
          a = by_short.out();
        }
        by_full.write(s);
        b = by_full.out();
      } else if (act < 20) {  // all is acknowledged, perhaps with an answer
        const bool answers = random() % 4 != 0;
        if (by_short.t.single_ack && by_short.t.snd_una != by_short.t.snd_end) ++acks_;
        const std::string s =
            answers ? text(static_cast<uint32_t>(std::min<uint64_t>(size, 1400))) : "";
        both([&](Peer& p) {
          ++p.ts_val;
          p.ts_ecr = timestamp(p.t, p.now);
        });
        answer(by_short, s);
        by_full.in(kAck, static_cast<uint32_t>(by_full.t.rcv_nxt),
                   static_cast<uint32_t>(by_full.t.snd_max), s);
      } else if (act < 24) {
        both([](Peer& p) { p.read(); });
      } else if (act < 27) {
        const Duration d = Duration::us(static_cast<int64_t>(random() % 200));
        both([&](Peer& p) { p.now = p.now + d; });
      } else if (act == 27) {
        const Duration d = Duration::ms(static_cast<int64_t>(random() % 400));
        a = by_short.after(d);
        b = by_full.after(d);
      } else if (act == 28) {  // a duplicate, or what fills no hole
        const uint32_t ahead = random() % 2 == 0 ? 0 : 100;
        both([&](Peer& p) {
          p.in(kAck, static_cast<uint32_t>(p.t.rcv_nxt) + ahead, static_cast<uint32_t>(p.t.snd_una),
               ahead != 0 ? "abc" : "");
        });
      } else if (act == 29) {
        const auto bytes = static_cast<uint32_t>(1'000 + random() % 50'000);
        both([&](Peer& p) { set_snd_buf(p.t, bytes); });
      } else if (act == 30) {
        const auto mss = static_cast<uint16_t>(600 + random() % 860);
        both([&](Peer& p) { path_shrunk(p.t, mss, p.now); });
      } else {
        const bool on = random() % 4 == 0;
        both([&](Peer& p) {
          set_cork(p.t, on, p.now);
          if (on) set_cork(p.t, false, p.now);
        });
      }
      for (Out& o : by_short.out()) a.push_back(std::move(o));
      for (Out& o : by_full.out()) b.push_back(std::move(o));
      ASSERT_EQ(a.size(), b.size()) << "seed " << seed << ", step " << step << ", act " << act;
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].seq, b[i].seq) << "seed " << seed << ", step " << step;
        ASSERT_EQ(a[i].ack, b[i].ack) << "seed " << seed << ", step " << step;
        ASSERT_EQ(a[i].window, b[i].window) << "seed " << seed << ", step " << step;
        ASSERT_EQ(a[i].data, b[i].data) << "seed " << seed << ", step " << step;
      }
      ASSERT_EQ(picture(by_short.t), picture(by_full.t))
          << "seed " << seed << ", step " << step << ", act " << act;
    }
  }
  EXPECT_GT(sends_, 500);
  EXPECT_GT(next_, 500);
  EXPECT_GT(acks_, 150);
  EXPECT_GT(answers_, 50);
}

/// The first segment of a connection finds the send ring, and so does the first after that was
/// given back.
TEST_P(Lone, FirstSegmentIsOne) {
  Peer p(ours(), theirs());
  p.config.sack = p.config.tlp = true;
  p.establish_active();
  ASSERT_FALSE(p.t.queue.has_ring());
  EXPECT_FALSE(may_send_single(p.t, 0, p.now) || may_send_single(p.t, p.t.mss + 1U, p.now));
  EXPECT_FALSE(p.t.queue.has_ring()) << "for what does not leave so";
  for (const char* const what : {"first", "given back"}) {
    ASSERT_TRUE(may_send_single(p.t, 1, p.now)) << what;
    EXPECT_TRUE(p.t.queue.has_ring() && p.t.single_send && p.t.single_ack) << what;
    ASSERT_EQ(send_short(p, "x").size(), 1U) << what;
    p.in(kAck, static_cast<uint32_t>(p.t.rcv_nxt), static_cast<uint32_t>(p.t.snd_max));
    ASSERT_TRUE(p.t.queue.empty() && p.t.queue.has_ring()) << what;
    p.now = p.now + kIdle;
    on_deadline(p.t, p.now);
    EXPECT_FALSE(p.t.queue.has_ring()) << what;
    p.t.last_sent = p.now;  // else RFC 5681 §4.1 sends it the full way
  }
}

/// What was found out does not outlive what it depends on.
TEST_P(Lone, IsForgottenWhenAnythingElseHappens) {
  const auto ready = [](Peer& p) {
    p.in(kAck, static_cast<uint32_t>(p.t.rcv_nxt), static_cast<uint32_t>(p.t.snd_max));
    p.out();
    ASSERT_TRUE(may_send_single(p.t, 1, p.now));
    ASSERT_TRUE(p.t.single_send && p.t.single_ack);
  };
  const auto forgets = [&](const char* what, auto&& f) {
    Peer p(ours(), theirs());
    p.config.sack = p.config.tlp = true;
    p.establish_active();
    p.write("x");
    p.out();
    ready(p);
    f(p);
    EXPECT_FALSE(p.t.single_send || p.t.single_ack || p.t.single_out) << what;
  };
  forgets("send buffer", [](Peer& p) { set_snd_buf(p.t, 1'000); });
  forgets("cork", [](Peer& p) { set_cork(p.t, true, p.now); });
  forgets("pacing", [](Peer& p) { set_max_pacing_rate(p.t, 1'000'000); });
  forgets("congestion control", [](Peer& p) { set_congestion(p.t, CcKind::kDctcp); });
  forgets("unsent limit", [](Peer& p) { set_notsent_lowat(p.t, 0); });
  forgets("segment size", [](Peer& p) { set_mss(p.t, 1'000); });
  forgets("a write of the full way", [](Peer& p) { p.write("y"); });
  forgets("urgent data", [](Peer& p) { mark_urgent(p.t); });
  forgets("a timer", [](Peer& p) { on_deadline(p.t, p.now); });
  forgets("shutdown", [](Peer& p) { shutdown_write(p.t, p.now); });
  forgets("abort", [](Peer& p) { abort(p.t, p.now); });
  forgets("a duplicate segment", [](Peer& p) {
    p.in(kAck, static_cast<uint32_t>(p.t.rcv_nxt) - 1, static_cast<uint32_t>(p.t.snd_una), "z");
  });
}

}  // namespace
}  // namespace vireo::tcp
