// Judges an RDMA device by what it reports and by the trial on an interface: for each feature that
// Vireo uses, a line with what happens without it, and the remedy.
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

/// What sysfs says of the function behind a device; empty where it says nothing.
struct PciFacts {
  std::string driver;  ///< "mlx5_core"
  std::string iommu;   ///< type of its group: "identity", "DMA", "DMA-FQ"
  std::string numa;
};
/// `sysfs`: DeviceFacts::sysfs, or a folder like it.
PciFacts pci_facts(const std::string& sysfs);

/// One rule that was asked for and removed.
struct RuleTrial {
  std::string_view name;  ///< "5-tuple"
  bool is_needed;         ///< without it flows of this kind cannot be carried at all
  int error;              ///< errno, 0: granted
};

/// An interface, opened by its RDMA device as the library does it: memory registered, queue pair
/// ready, rules asked for.
struct RdmaTrial {
  IfIndex ifindex{};
  std::string interface;
  int error = 0;      ///< errno of the step that refused, 0: none did
  std::string where;  ///< that step
  std::string mode;   ///< "mlx5" or "verbs"
  uint32_t inline_bytes = 0, tso_max_bytes = 0;
  std::vector<RuleTrial> rules;

  bool works() const;
  Carriage why() const;
  /// One line: the step and what it said.
  std::string detail() const;
};

/// What to do about a trial that failed; empty if it works. `driver`: PciFacts::driver.
std::string remedy_of(const RdmaTrial& t, std::string_view driver);

/// `refused`: how bad it is that a device cannot be used (a note where AF_XDP takes its place).
RdmaLine judge(const verbs::DeviceFacts& d, const PciFacts& pci, std::span<const RdmaTrial> trials,
               uint32_t wished_inline, Level refused);

}  // namespace vireo::doctor
