// The hand-made peer with SACK: a round trip of 10 ms, segments of 1000 bytes, numbered from 0.
#pragma once

#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

#include "stack/tcp/recovery.h"
#include "tests/unit/tcp/peer.h"

namespace vireo::tcp {

inline constexpr Duration kRtt = Duration::ms(10);

class SackPeer : public Peer {
 public:
  explicit SackPeer(uint32_t our_iss, uint32_t peer_iss, bool timestamps = false)
      : Peer(our_iss, peer_iss, 1024) {
    config.sack = true;
    config.timestamps = timestamps;
    peer_mss = timestamps ? 1012 : 1000;
    config.snd_buf = 1'000'000;
  }
  void establish() {
    open_active(t, config, pool, iss, now);
    ASSERT_EQ(out().size(), 1u);
    now = now + kRtt;
    in(kSyn | kAck, 0, 1);
    ASSERT_EQ(out().size(), 1u);
    ASSERT_EQ(state(t), State::kEstablished);
    ASSERT_EQ(t.mss, 1000);
    ASSERT_EQ(t.rtt.srtt, kRtt);
  }
  /// First byte of segment `i`, relative to our ISS.
  static uint32_t seg(uint32_t i) { return 1 + 1000 * i; }
  /// Sends `n` segments. @return how many went out.
  size_t send(uint32_t n) {
    write(text(1000 * n));
    return out().size();
  }
  /// All before segment `upto` arrived, and the segments [first, second) of `blocks`.
  Effects ack(uint32_t upto, std::initializer_list<std::pair<uint32_t, uint32_t>> blocks = {}) {
    std::vector<std::pair<uint32_t, uint32_t>> b;
    for (const auto& [from, to] : blocks) b.emplace_back(seg(from), seg(to));
    return ack_bytes(seg(upto), b);
  }
  Effects ack_bytes(uint32_t upto, const std::vector<std::pair<uint32_t, uint32_t>>& blocks) {
    std::vector<wire::SackBlock> b;
    for (const auto& [from, to] : blocks) b.push_back({iss + from, iss + to});
    std::vector<uint8_t> o(40);
    wire::TcpOptionWriter w(std::span<uint8_t, 40>(o.data(), 40));
    if (config.timestamps) w.timestamps(ts_val, ts_ecr);
    w.sack(b);
    o.resize(w.size());
    return input(t, make(kAck, 1, upto, "", o), now);
  }
  /// Numbers of the segments sent now.
  std::vector<uint32_t> sent_now() { return numbers(out()); }
  static std::vector<uint32_t> numbers(const std::vector<Out>& all) {
    std::vector<uint32_t> n;
    for (const Out& o : all) n.push_back((o.seq - 1) / 1000);
    return n;
  }
  void pass(Duration d) { now = now + d; }
  SendDesc& desc(uint32_t i) { return t.queue[t.queue.find(seg(i))]; }
  Scoreboard& board() { return t.queue.board(); }
};

using Numbers = std::vector<uint32_t>;

}  // namespace vireo::tcp
