// Members that share a port, and many SYNs to it at once. Owner: the test. Thread: the test's.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "group_lab.h"

namespace vireo::test {

inline constexpr uint8_t kSyn = 0x02;

/// SYNs from this many ports of the peer.
inline constexpr unsigned kManySyns = 384;

inline std::vector<Bytes> syns(const Flow& to, unsigned count = kManySyns,
                               uint16_t first_port = 10000, unsigned option_words = 0) {
  std::vector<Bytes> all;
  for (unsigned i = 0; i < count; ++i) {
    Flow f = to;
    f.flags = kSyn;
    f.peer_port = static_cast<uint16_t>(first_port + i);
    all.push_back(option_words == 0 ? f.frame() : with_ip_options(f.frame(), option_words));
  }
  return all;
}

/// Who got each of the frames.
class Outcomes {
 public:
  explicit Outcomes(std::vector<Who> who) : who_(std::move(who)) {}
  unsigned of(Who w) const { return static_cast<unsigned>(std::ranges::count(who_, w)); }
  /// All went to these, to each of them a part that chance explains (six sigma).
  bool is_even(const std::vector<Who>& among) const {
    const auto all = static_cast<double>(who_.size());
    const double p = 1.0 / static_cast<double>(among.size());
    // The buckets are dealt out evenly but for one.
    const double margin = 6 * std::sqrt(all * p * (1 - p)) + all / STEER_BUCKETS;
    unsigned sum = 0;
    for (const Who w : among) {
      sum += of(w);
      if (std::abs(of(w) - all * p) > margin) return false;
    }
    return sum == who_.size();
  }
  /// Of those that `w` had before: how many another has now.
  unsigned lost(const Outcomes& before, Who w) const {
    unsigned n = 0;
    for (size_t i = 0; i < who_.size(); ++i) n += before.who_[i] == w && who_[i] != w;
    return n;
  }
  bool operator==(const Outcomes&) const = default;
  friend std::ostream& operator<<(std::ostream& o, const Outcomes& all) {
    for (const Who w : {Who::kA, Who::kB, Who::kC, Who::kKernel, Who::kNobody, Who::kSeveral})
      o << w << " " << all.of(w) << "  ";
    return o;
  }

 private:
  std::vector<Who> who_;
};

/// Whether it has the key, or is the first of those who share it.
inline bool leads(const xdp::Steering& s, const FlowKey& key) {
  const auto holder = s.holder_of(key);
  return holder && *holder == s.slot();
}

struct ShareLab : GroupLab {
  using GroupLab::GroupLab;

  /// The members take part; they accept from now on.
  bool add_all() {
    if (!is_open || !add_b() || !add_c()) return false;
    for (xdp::Steering* s : members()) accept(*s, true);
    return true;
  }
  std::array<xdp::Steering*, 3> members() const { return {a.get(), b.get(), c.get()}; }
  static void accept(xdp::Steering& s, bool on) {
    s.accepting().store(on ? Device::kAcceptsNow : 0, std::memory_order_relaxed);
  }

  /// Sends all, which differ. In parts, as the rings of the sockets are short.
  /// @param most_ms how long a part is waited for, if some of its frames go to nobody here.
  Outcomes outcomes(const std::vector<Bytes>& frames, int most_ms = 2000) {
    constexpr size_t kPart = 32;
    std::map<Bytes, size_t> number;
    for (size_t i = 0; i < frames.size(); ++i) number[frames[i]] = i;
    std::vector<Who> who(frames.size(), Who::kNobody);
    const auto got = [&](const Bytes& frame, Who w) {
      const auto it = number.find(frame);
      if (it == number.end()) return;
      Who& at = who[it->second];
      at = at == Who::kNobody ? w : Who::kSeveral;
    };
    for (size_t sent = 0; sent < frames.size();) {
      const size_t end = std::min(frames.size(), sent + kPart);
      for (; sent < end; ++sent) EXPECT_TRUE(wire.send(frames[sent]));
      const auto missing = [&] {
        return std::ranges::count(std::span(who).first(end), Who::kNobody) != 0;
      };
      for (int tries = 0; tries < 2 * most_ms && missing(); ++tries) {
        for (const auto& [socket, w] : sockets())
          while (socket != nullptr)
            if (const auto f = socket->receive())
              got(f->frame, w);
            else
              break;
        while (const auto f = kernel.receive(0)) got(*f, Who::kKernel);
        if (missing()) usleep(500);
      }
    }
    return Outcomes(std::move(who));
  }
};

}  // namespace vireo::test
