// Local ports that outlive their connection. A port that the kernel chose for a connection is kept
// when the connection ends, with the socket that holds it and the flow rule that brings its frames;
// the next connection from the same address takes it without a system call.
//
// Only ports that the program did not choose are kept, only after connections with timestamps (a
// later connection then begins with a later timestamp, which a peer in TIME-WAIT accepts: RFC 6191,
// RFC 7323 §5.3), and each rests until the timestamp clock has advanced. Each costs a descriptor,
// hence the limit. Owner: Engine. Thread: holder of the engine's lock.
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

/// A local port with its socket and rule.
struct PortLease {
  Endpoint local;
  const Port* port = nullptr;  ///< the interface of the rule
  UniqueFd holder;             ///< the kernel's socket bound to the port
  FlowRule rule;               ///< for local address and port; none where rules have tags
  Instant since{};             ///< begin of its rest
};

class PortLeases {
 public:
  /// Twice the tick of the timestamp clock (RFC 7323 §5.4: 1 ms).
  static constexpr Duration kRest = Duration::ms(2);

  explicit PortLeases(uint32_t most) : most_(most) {}

  /// One more may be kept; those in use count.
  bool has_room() const { return resting_.size() + used_ < most_; }
  /// After has_room(), or for a lease that take() returned.
  void keep(PortLease lease, bool was_taken) {
    if (was_taken) --used_;
    resting_.push_back(std::move(lease));
  }
  /// A lease that take() returned has ended with its connection.
  void lost() { --used_; }
  /// The lease of `source` that has rested longest, if long enough.
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
  /// Returns resting leases of this port number to the kernel; 0: all. @return whether there were
  /// any.
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
  uint32_t used_ = 0;              ///< taken and not returned
  std::deque<PortLease> resting_;  ///< by `since`
};

}  // namespace vireo
