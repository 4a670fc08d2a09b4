#include "dev/registry.h"

#include <algorithm>

#include "dev/shm/shm_device.h"
#include "dev/xdp/xdp.h"

namespace vireo {
namespace {

XdpMode mode_of(XdpChoice c) {
  switch (c) {
    case XdpChoice::kAuto:
      return XdpMode::kAuto;
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

/// Interfaces that are other interfaces in disguise are carried only when asked for by name: what
/// enters them has often passed a bridge, a tunnel or a filter of the kernel that must not be
/// skipped.
bool is_plain(const net::Link& l) {
  return (l.kind == net::LinkKind::kPhysical || l.kind == net::LinkKind::kVeth) &&
         l.master.value() == 0;
}

Carried<std::unique_ptr<Device>> open(const Settings& s, const net::Link& link, Arena& arena) {
  if (auto may = may_open(s, link); !may) return std::unexpected(may.error());
  Result<std::unique_ptr<Device>> device;
  if (s.device == DeviceChoice::kShm) {
    device = open_shm(s.shm_wire, {.slots = 1024, .mtu = link.mtu});
  } else {
    const auto ring = static_cast<uint32_t>(s.xdp_ring);
    device = open_xdp(link.index, arena,
                      {.mode = mode_of(s.xdp_mode),
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

DeviceOpener device_opener(const Settings& settings) {
  return [&settings](const net::Link& link, Arena& arena) { return open(settings, link, arena); };
}

}  // namespace vireo
