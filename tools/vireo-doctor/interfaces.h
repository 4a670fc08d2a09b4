// Predicts what happens to sockets on each interface, by the library's own rules: the settings
// (dev/registry.h), the kernel's tables (stack/net), the host checks. Owner: main. Thread: one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/rules.h"
#include "config/settings.h"
#include "stack/net/netlink.h"
#include "tools/vireo-doctor/rdma.h"
#include "tools/vireo-doctor/report.h"

namespace vireo::doctor {

/// Every interface of the network namespace, predicted from facts; only RDMA devices were tried.
std::vector<InterfaceLine> check_interfaces(const Settings& s, const net::Snapshot& net,
                                            std::span<const Check> host, const RdmaFindings& rdma);

/// Opens each interface that is predicted to be carried, as the library does, and closes it;
/// replaces the prediction by the result. Real drivers may interrupt their link for a moment.
void try_interfaces(const Settings& s, net::Mirror& mirror, std::vector<InterfaceLine>& all);

/// What would happen to a socket of `program` that connects to `to`.
RouteLine check_route(const Settings& s, const Rules& rules, const std::string& program,
                      const net::Snapshot& net, const Endpoint& to,
                      std::span<const InterfaceLine> interfaces);

}  // namespace vireo::doctor
