// Local ports that outlive their connection. A port that the kernel drew for a connection is kept
// when that is over, with the socket that holds it and the rule that brings its frames, and the
// next connection from the same address has it without a system call.
//
// Only ports that nobody asked for by number are kept, only of connections with timestamps (their
// successors then begin with a later one, by which a peer in TIME-WAIT knows them: RFC 6191, RFC
// 7323 §5.3), and each rests until that clock has moved on. Each costs a descriptor, hence the
// limit. Owner: Engine. Thread: holder of the engine's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "core/address.h"
#include "core/clock.h"
#include "core/fd.h"
#include "dev/device.h"

namespace vireo {

struct Port;

/// A local port, and all that makes it ours.
struct PortLease {
  Endpoint local;
  const Port* port = nullptr;  ///< the interface whose rule it is
  UniqueFd holder;             ///< the kernel's socket that is bound to it
  FlowRule rule;               ///< of the local address and port; none where rules bear tags
  Instant since{};             ///< of its rest
};

class PortLeases {
 public:
  /// Twice the tick of the timestamp clock (RFC 7323 §5.4: 1 ms).
  static constexpr Duration kRest = Duration::ms(2);

  explicit PortLeases(uint32_t most) : most_(most) {}

  /// One more may be kept, those in use counted.
  bool has_room() const { return resting_.size() + used_ < most_; }
  /// After has_room(), or of one that take() gave.
  void keep(PortLease lease, bool was_taken) {
    if (was_taken) --used_;
    resting_.push_back(std::move(lease));
  }
  /// What take() gave has ended with its connection.
  void lost() { --used_; }
  /// The one of `source` that has rested longest, if it has rested enough.
  std::optional<PortLease> take(const IpAddr& source, const Port& port, Instant now) {
    for (auto i = resting_.begin(); i != resting_.end() && now - i->since >= kRest; ++i) {
      if (i->port != &port || i->local.addr != source) continue;
      std::optional<PortLease> lease(std::move(*i));
      resting_.erase(i);
      ++used_;
      return lease;
    }
    return std::nullopt;
  }
  /// Those of this number that rest go back to the kernel; 0: all. @return whether there were any.
  bool give_up(uint16_t number) {
    return std::erase_if(resting_, [&](const PortLease& l) {
             return number == 0 || l.local.port == number;
           }) != 0;
  }
  void give_up(const Port& port) {
    std::erase_if(resting_, [&](const PortLease& l) { return l.port == &port; });
  }
  size_t resting() const { return resting_.size(); }

 private:
  uint32_t most_;
  uint32_t used_ = 0;              ///< taken, and not back yet
  std::deque<PortLease> resting_;  ///< by `since`
};

}  // namespace vireo
