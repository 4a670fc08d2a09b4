// Connections of the kernel at ports where listeners of ours are: those that it had before, of an
// earlier process or before the interface was carried. Their frames match a listener's rule as well
// as ours do, so a device that can asks the kernel for each of a port's (Device::ask_kernel()),
// until the kernel says that it has no such connection; none can come to be after that, for every
// SYN is the listener's. Asking costs each frame a look-up, and the kernel's answer is dear for the
// helper: it asks less and less often. Owner: Engine. Thread: holder of its lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/clock.h"

namespace vireo {

class KernelConnections {
 public:
  /// The kernel may have some at `port` from now on.
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
  /// A port of which the kernel is to be asked now.
  std::optional<Question> due(Instant now) const {
    for (const Port& p : ports_)
      if (now >= p.at) return Question{p.port, p.change};
    return std::nullopt;
  }
  /// @return true: there is none, and frames of the port need not be asked for any more.
  bool answered(const Question& q, bool has_some, Instant now) {
    const auto p = std::ranges::find(ports_, q.port, &Port::port);
    if (p == ports_.end()) return false;
    if (p->change != q.change) return false;  // suspected anew meanwhile
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
