#include "tools/vireo-doctor/rdma_judge.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace vireo::doctor {
namespace {

std::string word_in(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

std::string last_of_link(const std::string& path) {
  char to[512];
  const auto n = ::readlink(path.c_str(), to, sizeof to);
  if (n <= 0) return {};
  const std::string target(to, static_cast<size_t>(n));
  return target.substr(target.find_last_of('/') + 1);
}

std::string said(int error) {
  if (error == 0) return "granted";
  return error == EOPNOTSUPP || error == ENOSYS ? "none" : std::strerror(error);
}

std::string summary_of(const verbs::DeviceFacts& d, const PciFacts& pci) {
  std::string out = d.firmware.empty() ? "firmware unknown" : "firmware " + d.firmware;
  if (d.vendor != 0) out += fmt::format(", vendor {:#x} part {}", d.vendor, d.part);
  if (!pci.driver.empty()) out += ", driver " + pci.driver;
  if (!pci.numa.empty() && pci.numa != "-1") out += ", NUMA node " + pci.numa;
  return out;
}

std::string port_text(const verbs::PortFacts& p) {
  std::string out = fmt::format("port {}: {}, {}", p.number, p.ethernet ? "Ethernet" : "InfiniBand",
                                p.active ? "active" : "down");
  if (p.gbits > 0) out += fmt::format(", {:g} Gbit/s", p.gbits);
  for (size_t i = 0; i < p.interfaces.size(); ++i)
    out += fmt::format("{}{} (by {})", i == 0 ? "; " : ", ", p.interfaces[i].interface.name,
                       p.interfaces[i].by_sysfs ? "sysfs" : "GID");
  if (p.interfaces.empty()) out += "; no interface";
  return out;
}

void add_open(RdmaLine& out, const verbs::DeviceFacts& d, Level refused) {
  const bool rights = d.open_error == EACCES || d.open_error == EPERM;
  out.checks.push_back({refused, "device", fmt::format("{}: {}", d.node, said(d.open_error)),
                        rights ? "read and write access to it (group, udev rule); in a container "
                                 "--device=/dev/infiniband"
                               : "see dmesg; in a container the device must be of its network "
                                 "namespace (rdma system)",
                        rights ? Carriage::kRights : Carriage::kDevice});
}

void add_link_layer(RdmaLine& out, const verbs::DeviceFacts& d, Level refused) {
  for (const verbs::PortFacts& p : d.ports)
    if (!p.ethernet)
      out.checks.push_back(
          {refused, "link layer",
           fmt::format("port {} is InfiniBand: its interfaces have no Ethernet frames", p.number),
           "a VPI card can be set to Ethernet (mlxconfig set LINK_TYPE_P1=2)", Carriage::kDevice});
}

void add_iommu(RdmaLine& out, const PciFacts& pci) {
  if (pci.driver.empty()) return;  // not a kernel device
  if (pci.iommu.starts_with("DMA"))
    out.checks.push_back(
        {Level::kNote,
         "IOMMU",
         fmt::format("translates what the device reads and writes ({})", pci.iommu),
         "iommu=pt on the kernel's command line saves that",
         {}});
  else
    out.checks.push_back({Level::kOk, "IOMMU", pci.iommu.empty() ? "none" : pci.iommu, "", {}});
}

void add_capabilities(RdmaLine& out, const verbs::DeviceFacts& d) {
  out.checks.push_back(d.checksums
                           ? Check{Level::kOk, "checksums", "made and verified by the device"}
                           : Check{Level::kNote, "checksums", "none: the processor makes them"});
  out.checks.push_back(
      d.tso_max_bytes > 0
          ? Check{Level::kOk, "segmentation", fmt::format("TSO up to {} bytes", d.tso_max_bytes)}
          : Check{Level::kNote, "segmentation", "none: the processor cuts streams into frames"});
  std::string clock = said(d.clock);
  if (d.clock == 0 && d.clock_khz != 0) clock = fmt::format("{} kHz", d.clock_khz);
  out.checks.push_back({Level::kOk,
                        "completions",
                        fmt::format("{}; tags {}, timestamps {}, clock {}",
                                    d.extended_cq == 0 ? "extended" : "plain", said(d.tagged_cq),
                                    said(d.stamped_cq), clock),
                        "",
                        {}});
  out.checks.push_back(
      {Level::kOk,
       "rings",
       fmt::format("{} requests of {} segments at most", d.most_requests, d.most_segments),
       "",
       {}});
}

void add_trial(RdmaLine& out, const RdmaTrial& t, std::string_view driver, uint32_t wished_inline,
               Level refused) {
  const std::string remedy = remedy_of(t, driver);
  if (t.error != 0) {
    out.checks.push_back(
        {refused, "queue pair", fmt::format("{}: {}", t.interface, t.detail()), remedy, t.why()});
    return;
  }
  out.checks.push_back(
      {Level::kOk,
       "queue pair",
       fmt::format("{}: raw packets, {}", t.interface,
                   t.mode == "mlx5" ? "rings driven directly (mlx5)" : "by libibverbs"),
       "",
       {}});
  if (t.inline_bytes < wished_inline)
    out.checks.push_back({Level::kNote,
                          "inline data",
                          fmt::format("{}: {} bytes, VMA_TX_MAX_INLINE is {}: longer frames are "
                                      "fetched from memory",
                                      t.interface, t.inline_bytes, wished_inline),
                          "",
                          {}});
  else
    out.checks.push_back({Level::kOk,
                          "inline data",
                          fmt::format("{}: {} bytes", t.interface, t.inline_bytes),
                          "",
                          {}});
  std::string granted;
  for (const RuleTrial& r : t.rules)
    if (r.error == 0) granted += fmt::format("{}{}", granted.empty() ? "" : ", ", r.name);
  out.checks.push_back({t.works() ? Level::kOk : refused, "flow rules",
                        t.works() ? fmt::format("{}: {}", t.interface, granted)
                                  : fmt::format("{}: {}", t.interface, t.detail()),
                        remedy, t.why()});
  for (const RuleTrial& r : t.rules)
    if (t.works() && r.error != 0)
      out.checks.push_back({Level::kNote,
                            "flow rules",
                            fmt::format("{}: {}: {}: such flows stay with the kernel", t.interface,
                                        r.name, said(r.error)),
                            "",
                            {}});
}

}  // namespace

PciFacts pci_facts(const std::string& sysfs) {
  if (sysfs.empty()) return {};
  const std::string device = sysfs + "/device";
  return {last_of_link(device + "/driver"), word_in(device + "/iommu_group/type"),
          word_in(device + "/numa_node")};
}

bool RdmaTrial::works() const {
  return error == 0 && std::ranges::all_of(
                           rules, [](const RuleTrial& r) { return r.error == 0 || !r.is_needed; });
}

Carriage RdmaTrial::why() const {
  if (error != 0) return carriage_of_errno(error);
  for (const RuleTrial& r : rules)
    if (r.is_needed && r.error != 0) return carriage_of_errno(r.error);
  return Carriage::kCarried;
}

std::string RdmaTrial::detail() const {
  if (error != 0) return fmt::format("{}: {}", where, std::strerror(error));
  std::string out;
  for (const RuleTrial& r : rules)
    if (r.is_needed && r.error != 0)
      out +=
          fmt::format("{}{} refused: {}", out.empty() ? "" : ", ", r.name, std::strerror(r.error));
  return out;
}

std::string remedy_of(const RdmaTrial& t, std::string_view driver) {
  switch (t.why()) {
    case Carriage::kCarried:
      return {};
    case Carriage::kRights:
      return "CAP_NET_RAW (root, or ambient: setpriv --ambient-caps, AmbientCapabilities= of "
             "systemd); older kernels want it in the first user namespace";
    case Carriage::kMemory:
      return "ulimit -l unlimited (LimitMEMLOCK=infinity of systemd), or less: VIREO_ARENA_BYTES, "
             "VMA_RX_WRE, VMA_TX_WRE";
    case Carriage::kDeviceBusy:
      return "another process has it";
    default:
      break;
  }
  if (t.error == 0 && driver.starts_with("mlx4"))
    return "options mlx4_core log_num_mgm_entry_size=-1 in /etc/modprobe.d, then load it anew";
  if (t.error == 0) return "a device or firmware with flow steering; VIREO_DEVICE=xdp until then";
  if (t.error == ENOTSUP && std::string_view(t.where).starts_with("bond"))
    return "a bond of mode active-backup, or of the ports of one card whose driver makes one RDMA "
           "device of them (RoCE LAG)";
  if (t.error == ENOTSUP)
    return "a device with raw-packet queue pairs (mlx4, mlx5); VIREO_DEVICE=xdp carries this one";
  return "see dmesg; VIREO_DEVICE=xdp until then";
}

RdmaLine judge(const verbs::DeviceFacts& d, const PciFacts& pci, std::span<const RdmaTrial> trials,
               uint32_t wished_inline, Level refused) {
  RdmaLine out;
  out.name = d.name;
  out.summary = summary_of(d, pci);
  for (const verbs::PortFacts& p : d.ports) out.ports.push_back(port_text(p));
  if (d.open_error != 0) {
    add_open(out, d, refused);
    return out;
  }
  add_link_layer(out, d, refused);
  add_iommu(out, pci);
  add_capabilities(out, d);
  for (const RdmaTrial& t : trials) {
    const bool ours = std::ranges::any_of(d.ports, [&](const verbs::PortFacts& p) {
      return std::ranges::any_of(p.interfaces, [&](const verbs::TiedInterface& i) {
        return i.interface.index == t.ifindex;
      });
    });
    if (ours) add_trial(out, t, pci.driver, wished_inline, refused);
  }
  return out;
}

}  // namespace vireo::doctor
