#include "dev/registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "core/log.h"
#include "dev/mlx5/mlx5.h"
#include "dev/shm/shm_device.h"
#include "dev/verbs/bond.h"
#include "dev/verbs/verbs.h"
#include "dev/xdp/xdp.h"
#include "dev/xdp/xdp_group.h"
#include "stack/net/links.h"

namespace vireo {
namespace {

/// A bond passes a native program down to its members, but frames received by a member never reach
/// an AF_XDP socket of the bond: the kernel drops them (net/xdp/xsk.c compares the receive queue's
/// device). A generic program runs in the stack and sees the frames as the bond's.
bool is_of_members(const net::Link& l) {
  return l.kind == net::LinkKind::kBond || l.kind == net::LinkKind::kTeam;
}

XdpMode mode_of(XdpChoice c, const net::Link& link) {
  switch (c) {
    case XdpChoice::kAuto:
      return is_of_members(link) ? XdpMode::kGeneric : XdpMode::kAuto;
    case XdpChoice::kZeroCopy:
      return XdpMode::kZeroCopy;
    case XdpChoice::kNative:
      return XdpMode::kNative;
    case XdpChoice::kGeneric:
      return XdpMode::kGeneric;
  }
  return XdpMode::kAuto;
}

std::unexpected<Refusal> refuse(Carriage why, int err, const char* where) {
  return std::unexpected(Refusal{why, err, where});
}

/// Virtual and enslaved interfaces are carried only if named: their traffic has often passed a
/// bridge, a tunnel or a kernel filter that must not be bypassed.
bool is_plain(const net::Link& l) {
  return (l.kind == net::LinkKind::kPhysical || l.kind == net::LinkKind::kVeth) &&
         l.master.value() == 0;
}

StampTime stamps_of(HwTimestamps c) {
  switch (c) {
    case HwTimestamps::kOff:
      return StampTime::kNone;
    case HwTimestamps::kRaw:
      return StampTime::kRaw;
    case HwTimestamps::kBest:
      return StampTime::kBest;
    case HwTimestamps::kSync:
      return StampTime::kSystem;
    case HwTimestamps::kPtp:
      return StampTime::kPtp;
  }
  return StampTime::kNone;
}

/// `open` is open_mlx5(), which tries more, or open_verbs().
Result<std::unique_ptr<Device>> open_rdma(decltype(&open_verbs) open, const Settings& s,
                                          const net::Link& link, Arena& arena) {
  const auto count = [](auto v) { return static_cast<uint32_t>(v); };
  return open({.ifindex = link.index,
               .interface = link.name,
               .mtu = link.mtu,
               .mac = link.mac,
               .prove = s.device == DeviceChoice::kAuto},
              arena,
              {.rx_frames = count(s.rx_wre),
               .tx_frames = count(s.tx_wre),
               .inline_bytes = count(s.tx_max_inline),
               .signal_every = count(s.tx_wre_batching),
               .refill_receives = count(s.rx_wre_batching),
               .stamps = stamps_of(s.hw_ts_conversion),
               .stride = s.strq == StridingChoice::kOn,
               .lro = s.lro == StridingChoice::kOn});
}

constexpr const char* kInterfaces = "/sys/class/net/";

bool is_above_rdma(const std::string& interface) {
  const std::string path = kInterfaces + interface + "/device/infiniband";
  return syscall(SYS_faccessat, AT_FDCWD, path.c_str(), F_OK) == 0;
}

Carried<std::unique_ptr<Device>> open(const Settings& s, const net::Link& link, Arena& arena) {
  if (auto may = may_open(s, link); !may) return std::unexpected(may.error());
  Result<std::unique_ptr<Device>> device;
  if (s.device == DeviceChoice::kShm) {
    device = open_shm(s.shm_wire, {.slots = 1024, .mtu = link.mtu});
  } else if (is_rdma(s.device)) {
    device = open_rdma(s.device == DeviceChoice::kMlx5 ? open_mlx5 : open_verbs, s, link, arena);
  } else {
    if (s.device == DeviceChoice::kAuto && has_rdma(link)) {
      device = open_rdma(open_mlx5, s, link, arena);
      if (device) return std::move(*device);
      log<LogLevel::kInfo>("{}: not by its RDMA device: {} ({})", link.name, device.error().where,
                           device.error().code);
    }
    const auto ring = static_cast<uint32_t>(s.xdp_ring);
    device = open_xdp(link.index, arena,
                      {.mode = mode_of(s.xdp_mode, link),
                       .rx_frames = ring,
                       .tx_frames = ring,
                       .busy_poll_us = static_cast<uint32_t>(s.xdp_busy_poll.us())});
  }
  if (!device)
    return refuse(carriage_of_errno(device.error().code), device.error().code,
                  device.error().where);
  return std::move(*device);
}

}  // namespace

Carried<void> may_open(const Settings& s, const net::Link& link) {
  if (s.device == DeviceChoice::kOff) return refuse(Carriage::kDisabled, 0, "VIREO_DEVICE=off");
  const bool is_named =
      std::find(s.interfaces.begin(), s.interfaces.end(), link.name) != s.interfaces.end();
  if (!s.interfaces.empty() && !is_named)
    return refuse(Carriage::kInterface, 0, "not in VIREO_INTERFACES");
  if (!is_named && !is_plain(link))
    return refuse(Carriage::kInterface, 0, "carried only if named in VIREO_INTERFACES");
  return {};
}

bool has_rdma(const net::Link& link) {
  if (const auto bond = verbs::read_bond(link.name))
    return std::ranges::any_of(bond->members, is_above_rdma);
  return is_above_rdma(link.name);
}

bool may_have_rings(const Settings& settings) {
  if (settings.device != DeviceChoice::kAuto) return is_rdma(settings.device);
  DIR* const all = opendir(kInterfaces);
  if (all == nullptr) return false;
  bool any = false;
  while (const dirent* e = any ? nullptr : readdir(all))
    any = e->d_name[0] != '.' && is_above_rdma(e->d_name);
  closedir(all);
  return any;
}

GroupOpener group_opener(const Settings& s) {
  const bool is_xdp =
      s.device == DeviceChoice::kXdp || (s.device == DeviceChoice::kAuto && !may_have_rings(s));
  if (!is_xdp || s.group_bytes.value() == 0 || !kernel_shares_queues()) return nullptr;
  return [&s] {
    return enter_xdp_group({.group_bytes = static_cast<size_t>(s.group_bytes.value()),
                            .most_bytes = static_cast<size_t>(s.arena_bytes.value()),
                            .huge_pages = s.mem_alloc_type == MemAlloc::kHuge});
  };
}

DeviceOpener device_opener(const Settings& settings) {
  return [&settings](const net::Link& link, Arena& arena) { return open(settings, link, arena); };
}

}  // namespace vireo
