// Which frames the devices bring to the engine: the flow rules on all ports that a flow receives
// by, and those of connections that another TCP has taken over.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <optional>
#include <vector>

#include "core/carriage.h"
#include "stack/engine/flow.h"
#include "stack/engine/kernel_connections.h"
#include "stack/engine/part.h"
#include "stack/engine/port.h"

namespace vireo {

struct Hub;

class Steering : Part {
 public:
  /// A rule for `key` on one port; an empty one where another rule brings the same frames.
  Carried<FlowRule> make_rule(Port& port, const FlowKey& key, FlowTag tag);
  /// The rules of a bound flow on one port: two for a wildcard of both families, none if `device`
  /// is an interface of another port.
  Carried<void> add_rules(Port& port, FlowKey key, IfIndex device, const Flow& f,
                          std::vector<FlowRule>& rules);
  /// The same on all ports that it receives by.
  Carried<void> add_bound_rules(const Flow& f, IfIndex device, std::vector<FlowRule>& rules);
  /// A port was opened: sockets bound to the wildcard address receive by it too.
  void add_wildcards(Port& port);
  /// The port has a new device in place of `from`: requests all rules from it. A connection whose
  /// rule is refused ends as with a lost device; a bound socket no longer receives by the port.
  void move_rules(Port& p, const Device& from) noexcept;

  /// Frames of `f` belong to another TCP from here on. Errors: ENOTSUP the device cannot
  /// distinguish them from its listener's, ENOSPC; then nothing was done.
  Result<void> leave_to_kernel(TcpFlow& f);
  /// Before the devices end.
  void forget_all_left() noexcept { left_.clear(); }
  /// Once there are many, checks which of those connections have ended. `is_there(key, interface)`
  /// may be slow.
  void forget_left(bool (*is_there)(const FlowKey&, IfIndex));

  // ---- kernel connections at ports of our listeners (kernel_connections.h)
  void suspect_kernel(Port& port, uint16_t local_port);
  /// A port about which the helper is to query the kernel. Connections whose remote address is in
  /// `own` stay on this host and do not count.
  std::optional<KernelConnections::Question> to_ask(Instant now, std::vector<IpAddr>& own);
  /// The kernel's answer.
  void kernel_said(const KernelConnections::Question& q, bool has_some, Instant now) noexcept;

 private:
  VlanId vlan_of(const IpAddr& local) const noexcept;

  struct Left {
    FlowKey key;
    IfIndex by;
    FlowRule rule;
  };
  Hub& hub() const noexcept;
  std::vector<Left> left_;  ///< rules of connections that the kernel has or had
  size_t look_above_ = 64;  ///< above this number it is worth checking them
  KernelConnections kernel_connections_;
};

}  // namespace vireo
