// RDMA devices of the host: is libibverbs there, which devices, which interface belongs to which
// port, and what an interface's device grants when it is opened as the library opens it.
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
  std::vector<std::string> remedies;  ///< of the trial at the same place

  /// nullptr: it was not tried.
  const RdmaTrial* trial_of(IfIndex ifindex) const;
  std::string remedy_of(IfIndex ifindex) const;
};

/// Makes a queue pair and rules for addresses of documentation (RFC 5737, RFC 3849, RFC 6676) on
/// each device that would be used, and removes them.
RdmaFindings check_rdma(const Settings& s, const net::Snapshot& net);

}  // namespace vireo::doctor
