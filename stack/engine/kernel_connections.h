// Kernel connections at ports where we have listeners: older ones, of an earlier process or from
// before the interface was carried. Their frames match the listener's rule too, so a device that
// can looks up the kernel's sockets for each frame of such a port (Device::ask_kernel()), until the
// kernel reports that it has no such connection; no new one can appear, because every SYN goes to
// our listener. The look-up costs time per frame, and the query to the kernel is expensive for the
// helper, which repeats it less and less often. Owner: Engine. Thread: holder of its lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/clock.h"

namespace vireo {

class KernelConnections {
 public:
  /// The kernel may have connections at `port`.
  void suspect(uint16_t port) {
    Port& p = of(port);
    ++p.change;
    p.at = Instant();
    p.pause = kFirstPause;
  }
  struct Question {
    uint16_t port = 0;
    uint32_t change = 0;
  };
  /// A port about which to query the kernel now.
  std::optional<Question> due(Instant now) const {
    for (const Port& p : ports_)
      if (now >= p.at) return Question{p.port, p.change};
    return std::nullopt;
  }
  /// @return true: there is none, and the device need not look up frames of the port any more.
  bool answered(const Question& q, bool has_some, Instant now) {
    const auto p = std::ranges::find(ports_, q.port, &Port::port);
    if (p == ports_.end()) return false;
    if (p->change != q.change) return false;  // suspected again meanwhile
    if (!has_some) {
      ports_.erase(p);
      return true;
    }
    p->at = now + p->pause;
    p->pause = std::min(p->pause + p->pause, kMaxPause);
    return false;
  }
  bool empty() const { return ports_.empty(); }

 private:
  static constexpr Duration kFirstPause = Duration::s(1);
  static constexpr Duration kMaxPause = Duration::s(64);
  struct Port {
    uint16_t port = 0;
    uint32_t change = 0;
    Instant at{};
    Duration pause{};
  };
  Port& of(uint16_t port) {
    const auto p = std::ranges::find(ports_, port, &Port::port);
    if (p != ports_.end()) return *p;
    ports_.push_back({.port = port});
    return ports_.back();
  }
  std::vector<Port> ports_;
};

}  // namespace vireo
