#include "dev/verbs/inventory.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>

#include "dev/verbs/bond.h"
#include "dev/verbs/late_libibverbs.h"
#include "dev/verbs/limits.h"
#include "dev/verbs/match.h"

namespace vireo::verbs {
namespace {

double gbits_of(const ibv_port_attr& a) {
  const auto lanes = [&] {
    switch (a.active_width) {
      case 1:
        return 1;
      case 2:
        return 4;
      case 4:
        return 8;
      case 8:
        return 12;
      case 16:
        return 2;
      default:
        return 0;
    }
  }();
  switch (a.active_speed) {  // IBA, PortInfo.LinkSpeedActive: SDR, DDR, QDR, FDR10, FDR, EDR, HDR
    case 1:
      return 2.5 * lanes;
    case 2:
      return 5 * lanes;
    case 4:
    case 8:
      return 10 * lanes;
    case 16:
      return 14 * lanes;
    case 32:
      return 25 * lanes;
    case 64:
      return 50 * lanes;
    case 128:
      return 100 * lanes;
    default:
      return 0;
  }
}

/// ibv_query_port() without the inline wrapper of verbs.h, which links against the library.
bool query_port(ibv_context* context, uint8_t number, ibv_port_attr& attr) {
  attr = {};
  const verbs_context* extended = verbs_get_ctx_op(context, query_port);
  if (extended != nullptr) return extended->query_port(context, number, &attr, sizeof attr) == 0;
  return library().query_port(context, number, reinterpret_cast<_compat_ibv_port_attr*>(&attr)) ==
         0;
}

/// @return errno; 0: a completion queue with `flags` was created (and destroyed).
int try_extended_cq(ibv_context* context, uint64_t flags) {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 16;
  wanted.wc_flags = flags;
  ibv_cq_ex* cq = ibv_create_cq_ex(context, &wanted);
  if (cq == nullptr) return errno != 0 ? errno : EOPNOTSUPP;
  library().destroy_cq(ibv_cq_ex_to_cq(cq));
  return 0;
}

int try_clock(ibv_context* context) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  const int error = ibv_query_rt_values_ex(context, &values);
  if (error != 0) return error > 0 ? error : -error;
  return (values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0 ? 0 : EOPNOTSUPP;
}

/// True if the interface is a bond and a member that receives for it belongs to this port.
bool receives_for(const ibv_device& device, uint8_t number, const std::string& interface) {
  const auto bond = read_bond(interface);
  return bond && std::ranges::any_of(receivers(*bond), [&](const std::string& member) {
           return port_by_sysfs(device, member) == number;
         });
}

PortFacts describe_port(ibv_device* device, ibv_context* context, uint8_t number,
                        std::span<const NamedInterface> interfaces) {
  PortFacts p;
  p.number = number;
  ibv_port_attr attr;
  if (query_port(context, number, attr)) {
    p.ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    p.active = attr.state == IBV_PORT_ACTIVE;
    p.gbits = gbits_of(attr);
  }
  for (const NamedInterface& i : interfaces) {
    if (port_by_sysfs(*device, i.name) == number || receives_for(*device, number, i.name))
      p.interfaces.push_back({i, true});
    else if (port_by_gid(context, i.index) == number)
      p.interfaces.push_back({i, false});
  }
  return p;
}

DeviceFacts describe(ibv_device* device, std::span<const NamedInterface> interfaces) {
  DeviceFacts d;
  d.name = device->name;
  d.node = std::string("/dev/infiniband/") + device->dev_name;
  d.sysfs = device->ibdev_path;
  errno = 0;
  ibv_context* const context = library().open_device(device);
  if (context == nullptr) {
    d.open_error = errno != 0 ? errno : EIO;
    return d;
  }
  ibv_device_attr_ex limits{};
  if (query_limits(context, limits)) {
    const ibv_device_attr& a = limits.orig_attr;
    d.firmware = a.fw_ver;
    d.vendor = a.vendor_id;
    d.part = a.vendor_part_id;
    d.most_requests = static_cast<uint32_t>(a.max_qp_wr);
    d.most_segments = static_cast<uint32_t>(a.max_sge);
    d.checksums = sums_checksums(limits);
    d.tso_max_bytes = segments(limits) ? limits.tso_caps.max_tso : 0;
    d.clock_khz = limits.hca_core_clock;
    for (uint8_t n = 1; n <= a.phys_port_cnt; ++n)
      d.ports.push_back(describe_port(device, context, n, interfaces));
  } else {
    d.open_error = EIO;
  }
  d.extended_cq = try_extended_cq(context, IBV_WC_EX_WITH_BYTE_LEN);
  d.tagged_cq = try_extended_cq(context, IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG);
  d.stamped_cq =
      try_extended_cq(context, IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  d.clock = try_clock(context);
  library().close_device(context);
  return d;
}

}  // namespace

Result<std::string> libibverbs_file() {
  if (auto loaded = load_libibverbs(); !loaded) return std::unexpected(loaded.error());
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(library().get_device_list), &info) == 0) return std::string();
  return std::string(info.dli_fname);
}

Result<std::vector<DeviceFacts>> inventory(std::span<const NamedInterface> interfaces) {
  if (auto loaded = load_libibverbs(); !loaded) return std::unexpected(loaded.error());
  errno = 0;
  const DeviceList list;
  if (list.all().empty() && errno != 0) return fail_errno("ibv_get_device_list");
  std::vector<DeviceFacts> out;
  for (ibv_device* d : list.all()) out.push_back(describe(d, interfaces));
  return out;
}

}  // namespace vireo::verbs
