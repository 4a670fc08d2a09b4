// Which frames the devices bring to the engine: the flow rules on all ports that a flow receives
// by, and those of connections that another TCP has taken over. What they still bring of a flow
// that is the kernel's by now is given to the kernel (strays.cpp).
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "core/carriage.h"
#include "stack/engine/flow.h"
#include "stack/engine/kernel_connections.h"
#include "stack/engine/part.h"
#include "stack/engine/port.h"
#include "stack/wire/parse.h"

namespace vireo {

struct Hub;

class Steering : Part {
 public:
  /// A rule for `key` on one port; an empty one where another rule brings the same frames.
  Carried<FlowRule> make_rule(Port& port, const FlowKey& key, FlowTag tag);
  /// A listener's rules, on all ports that it receives by. `device`: of SO_BINDTODEVICE; 0: none.
  Carried<void> add_bound_rules(const Listener& l, IfIndex device, std::vector<FlowRule>& rules);
  /// Whether a UDP flow could be received: opens the ports.
  Carried<void> open_ports(const UdpFlow& u);
  /// Makes the binding's rules those that its flows need; none if it is the kernel's. Refused: it
  /// is to be copied, and the device cannot.
  Carried<void> renew(UdpBinding& b);
  /// Tries again to get the rules that other processes had. Once a second.
  void retry() noexcept;
  /// Makes retry() look at UDP's rules.
  void try_again() noexcept { is_refused_ = true; }
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

  // ---- frames of a flow that is the kernel's now, under way when its rules went (strays.cpp)
  /// For a moment frames of `key` for which there is no flow are given to the kernel.
  /// Groups::kNone: but for those of groups, which the kernel has anyway.
  enum class Groups : uint8_t { kNone, kToo };
  void expect_strays(const FlowKey& key, Instant now, Groups groups = Groups::kToo);
  /// Gives the kernel those that are in the rings, or are just coming there. Once the rules have
  /// gone. Some 100 us, and a call of the kernel for each frame.
  void give_strays(Instant now) noexcept;
  /// A frame without a flow: the kernel gets it if it is expected. @return whether it is.
  bool take_stray(Port& port, const wire::ParsedFrame& f, const PacketChain& payload,
                  Instant now) noexcept;
  /// @return whether the kernel has it.
  bool give_to_kernel(Port& port, const wire::ParsedFrame& f, const PacketChain& payload) noexcept;
  void expire_strays(Instant now) noexcept;
  Instant first_stray_expiry() const noexcept {
    return strays_.empty() ? Instant::never() : strays_.front().until;
  }

  // ---- kernel connections at ports of our listeners (kernel_connections.h)
  void suspect_kernel(Port& port, uint16_t local_port);
  /// A port about which the helper is to query the kernel. Connections whose remote address is in
  /// `own` stay on this host and do not count.
  std::optional<KernelConnections::Question> to_ask(Instant now, std::vector<IpAddr>& own);
  /// The kernel's answer.
  void kernel_said(const KernelConnections::Question& q, bool has_some, Instant now) noexcept;

 private:
  VlanId vlan_of(const IpAddr& local) const noexcept;
  FlowKey key_on(const Port& port, FlowKey key) const noexcept;
  Carried<FlowRule> make_bound_rule(Port& port, const FlowKey& key, const Listener& l);
  Carried<void> add_rules(Port& port, const FlowKey& key, IfIndex device, const Listener& l,
                          std::vector<FlowRule>& rules);
  /// A rule that a flow needs.
  struct Need {
    Port* port;
    FlowKey key;
  };
  void need_on(Port& port, FlowKey key, IfIndex device, bool v6only,
               std::vector<Need>& needs) const;
  Carried<void> need(const Flow& f, IfIndex device, std::vector<Need>& needs);
  void need_group(const UdpBinding& b, std::vector<Need>& needs) const;
  Carried<FlowRule> make_copied_rule(const UdpBinding& b, const Need& n);

  struct Left {
    FlowKey key;
    IfIndex by;
    FlowRule rule;
  };
  struct Stray {
    FlowKey key;
    Instant until;
    Groups groups;
  };
  Hub& hub() const noexcept;
  std::vector<Left> left_;  ///< rules of connections that the kernel has or had
  size_t look_above_ = 64;  ///< above this number it is worth checking them
  std::deque<Stray> strays_;
  KernelConnections kernel_connections_;
  bool is_refused_ = false;  ///< another process had a rule that a binding needs
};

}  // namespace vireo
