// Judges an RDMA device by its reported features and by the trial on an interface: for each feature
// that Vireo uses, a line with the consequence of its absence and the remedy.
// Owner: none (functions on values). Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dev/verbs/inventory.h"
#include "tools/vireo-doctor/report.h"

namespace vireo::doctor {

/// What sysfs reports about the PCI function of a device; empty if nothing.
struct PciFacts {
  std::string driver;  ///< "mlx5_core"
  std::string iommu;   ///< type of its group: "identity", "DMA", "DMA-FQ"
  std::string numa;
};
/// `sysfs`: DeviceFacts::sysfs, or a folder like it.
PciFacts pci_facts(const std::string& sysfs);

/// One rule that was requested and removed.
struct RuleTrial {
  std::string_view name;  ///< "5-tuple"
  bool is_needed;         ///< without it such flows cannot be carried at all
  int error;              ///< errno; 0: granted
};

/// An interface opened by its RDMA device as the library does: memory registered, QP ready, rules
/// requested.
struct RdmaTrial {
  IfIndex ifindex{};
  std::string interface;
  int error = 0;      ///< errno of the step that failed; 0: none did
  std::string where;  ///< that step
  std::string mode;   ///< "mlx5" or "verbs"
  uint32_t inline_bytes = 0, tso_max_bytes = 0;
  std::vector<RuleTrial> rules;

  bool works() const;
  Carriage why() const;
  /// One line: the step and its error.
  std::string detail() const;
};

/// The remedy for a failed trial; empty if it works. `driver`: PciFacts::driver.
std::string remedy_of(const RdmaTrial& t, std::string_view driver);

/// `refused`: the level of an unusable device (a note if AF_XDP replaces it).
RdmaLine judge(const verbs::DeviceFacts& d, const PciFacts& pci, std::span<const RdmaTrial> trials,
               uint32_t wished_inline, Level refused);

}  // namespace vireo::doctor
