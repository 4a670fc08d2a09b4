// Two Tcbs whose segments reach each other after a fixed delay, in virtual time.
// Owner: the test. Thread: one.
#pragma once

#include <sys/uio.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/packet.h"
#include "stack/tcp/tcb.h"

namespace vireo::tcp {

class Pair {
 public:
  struct Host {
    explicit Host(uint32_t frames) : memory(size_t{frames} * 2048), pool(memory, 2048) {}
    ~Host() { release(t); }
    std::vector<std::byte> memory;
    PacketPool pool;
    Config config;
    Tcb t;
    uint64_t sent = 0;  ///< segments
  };
  /// A segment on its way.
  struct Flying {
    Instant at;
    int to = 0;
    Seq32 seq, ack;
    uint16_t window = 0;
    SegFlags flags{};
    std::vector<uint8_t> options;
    std::string payload;
  };

  explicit Pair(uint32_t frames = 1024) : a(frames), b(frames) {
    a.config.mss = b.config.mss = 1460;
  }
  Host& host(int side) { return side == 0 ? a : b; }

  /// a connects to b.
  void connect(Seq32 iss_a, Seq32 iss_b) {
    iss_[0] = iss_a;
    iss_[1] = iss_b;
    open_active(a.t, a.config, a.pool, iss_a, now);
    pump(0);
  }
  /// Delivers and fires what is due until `end`.
  void until(Instant end) {
    pump(0);
    pump(1);
    while (true) {
      const Instant wire = flying.empty() ? Instant::never() : flying.front().at;
      const Instant next = std::min({wire, deadline(a.t), deadline(b.t)});
      if (next.is_never() || next > end) break;
      now = std::max(now, next);
      while (!flying.empty() && flying.front().at <= now) {
        const Flying f = std::move(flying.front());
        flying.pop_front();
        arrive(f);
      }
      for (int side : {0, 1})
        if (deadline(host(side).t) <= now) (void)on_deadline(host(side).t, now);
      pump(0);
      pump(1);
    }
    now = end;
  }
  void after(Duration d) { until(now + d); }

  size_t write(int side, const std::string& s) {
    const iovec v{const_cast<char*>(s.data()), s.size()};
    const size_t n = append(host(side).t, {&v, 1}, false, now);
    pump(side);
    return n;
  }
  std::string read(int side, size_t most = size_t{1} << 30) {
    std::string s;
    PacketChain& q = recv_queue(host(side).t);
    while (!q.empty() && s.size() < most) {
      const auto n = static_cast<uint32_t>(std::min<size_t>(most - s.size(), q.front()->length));
      s.append(reinterpret_cast<const char*>(q.front()->data()), n);
      q.trim_front(n);
    }
    consumed(host(side).t, static_cast<uint32_t>(s.size()), now);
    pump(side);
    return s;
  }
  void pump(int side) {
    Host& h = host(side);
    Plan p;
    while (next_segment(h.t, now, p)) {
      Flying f{.at = now + delay,
               .to = 1 - side,
               .seq = p.seq,
               .ack = p.ack,
               .window = p.window,
               .flags = p.flags,
               .options = {p.options, p.options + p.options_length},
               .payload = {}};
      if (p.length > 0)
        f.payload.assign(reinterpret_cast<const char*>(p.packet->frame + p.at), p.length);
      ++h.sent;
      sent(h.t, p, now);
      if (!lose || !lose(f)) flying.push_back(std::move(f));
    }
  }
  void arrive(const Flying& f) {
    Host& h = host(f.to);
    Segment s;
    s.seq = f.seq;
    s.ack = f.ack;
    s.window = f.window;
    s.flags = f.flags;
    s.options = f.options;
    if (!f.payload.empty()) {
      PacketRef p(h.pool.take());
      if (!p) return;
      std::memcpy(p->data(), f.payload.data(), f.payload.size());
      p->length = static_cast<uint16_t>(f.payload.size());
      s.payload.push_back(std::move(p));
    }
    if (h.t.state == State::kClosed && h.t.error == 0 && s.flags == SegFlags::kSyn &&
        !opened[f.to]) {
      opened[f.to] = true;
      open_passive(h.t, h.config, h.pool, s, iss_[f.to], now);
    } else if (h.t.state == State::kClosed) {
      Plan p;
      if (!reset_for(s, s.payload.bytes(), p)) return;
      ++h.sent;
      flying.push_back({.at = now + delay,
                        .to = 1 - f.to,
                        .seq = p.seq,
                        .ack = p.ack,
                        .window = 0,
                        .flags = p.flags,
                        .options = {},
                        .payload = {}});
    } else {
      (void)input(h.t, std::move(s), now);
    }
  }

  Host a, b;
  Instant now = Instant::from_ns(1'000'000'000'000);
  Duration delay = Duration::ms(1);
  std::deque<Flying> flying;
  std::function<bool(const Flying&)> lose;  ///< true: this one never arrives
  bool opened[2] = {true, false};

 private:
  Seq32 iss_[2];
};

}  // namespace vireo::tcp
