// Which frames the devices bring to the engine: the rules of flows on all ports that they hear by,
// and of connections that another TCP has taken over.
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
  /// Rules of a bound flow on one port: two for a wildcard of both families, none if `device` names
  /// an interface that is not on its wire.
  Carried<void> add_rules(Port& port, FlowKey key, IfIndex device, const Flow& f,
                          std::vector<FlowRule>& rules);
  /// The same on all ports by which it hears.
  Carried<void> add_bound_rules(const Flow& f, IfIndex device, std::vector<FlowRule>& rules);
  /// A port is open: sockets bound to every address hear by it, too.
  void add_wildcards(Port& port);
  /// The port has another device instead of `from`: rules are asked of it. Who is refused there
  /// ends as with a lost device; sockets that are bound hear nothing by it.
  void move_rules(Port& p, const Device& from) noexcept;

  /// Frames of `f` are another TCP's from here on. Errors: ENOTSUP the device cannot tell them from
  /// its listener's, ENOSPC; nothing was done.
  Result<void> leave_to_kernel(TcpFlow& f);
  /// Before the devices end.
  void forget_all_left() noexcept { left_.clear(); }
  /// Asks once in a while which of those connections are over. `is_there(key, interface)` may be
  /// slow.
  void forget_left(bool (*is_there)(const FlowKey&, IfIndex));

  // ---- connections that the kernel has at ports of our listeners (kernel_connections.h)
  void suspect_kernel(Port& port, uint16_t local_port);
  /// A port of which the helper is to ask the kernel whether it has connections there, none that
  /// stay on this host: those whose remote end is in `own`.
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
  std::vector<Left> left_;  ///< of connections that the kernel has, and that perhaps are over
  size_t look_above_ = 64;  ///< when there are more, it is worth a look
  KernelConnections kernel_connections_;
};

}  // namespace vireo
