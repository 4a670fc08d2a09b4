// RDMA devices of the host: whether libibverbs is installed, the devices, the interface of each
// port, and what a device grants when it is opened as the library opens it.
// Owner: main. Thread: one.
#pragma once

#include <string>
#include <vector>

#include "config/settings.h"
#include "stack/net/snapshot.h"
#include "tools/vireo-doctor/rdma_judge.h"
#include "tools/vireo-doctor/report.h"

namespace vireo::doctor {

struct RdmaFindings {
  std::vector<Check> checks;  ///< of the host
  std::vector<RdmaLine> devices;
  std::vector<RdmaTrial> trials;      ///< of the interfaces that the library would open
  std::vector<std::string> remedies;  ///< for the trial with the same index

  /// nullptr: not tried.
  const RdmaTrial* trial_of(IfIndex ifindex) const;
  std::string remedy_of(IfIndex ifindex) const;
};

/// Creates a QP and rules for documentation addresses (RFC 5737, RFC 3849, RFC 6676) on each device
/// that would be used, and removes them.
RdmaFindings check_rdma(const Settings& s, const net::Snapshot& net);

}  // namespace vireo::doctor
