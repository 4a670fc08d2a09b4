// Clocks of devices: ours, and those that the kernel's drivers use.
#include "stack/sock/stamps.h"

#include <linux/sockios.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cstring>

#include "core/fd.h"
#include "stack/engine/engine.h"
#include "stack/sock/libc.h"

namespace vireo {
namespace {

/// What the driver of the interface stamps. All zero: nothing, or it cannot.
hwtstamp_config stamped_by_driver(int fd, const std::string& interface) {
  hwtstamp_config c{};
  ifreq r{};
  interface.copy(r.ifr_name, IFNAMSIZ - 1);
  r.ifr_data = reinterpret_cast<char*>(&c);
  if (libc().ioctl(fd, SIOCGHWTSTAMP, &r) != 0) return {};
  return c;
}

}  // namespace

bool only_kernel_has_clock(Engine& e, uint32_t flags) VIREO_NO_THREAD_ANALYSIS {
  const bool receives = (flags & SOF_TIMESTAMPING_RAW_HARDWARE) != 0 && !e.ports().stamp_frames();
  const bool sends = (flags & SOF_TIMESTAMPING_TX_HARDWARE) != 0;
  if (!receives && !sends) return false;
  const UniqueFd fd(libc().socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return false;
  for (const Port* p : e.ports().all()) {
    const hwtstamp_config c = stamped_by_driver(fd.get(), p->link.name);
    if ((receives && c.rx_filter != HWTSTAMP_FILTER_NONE) ||
        (sends && c.tx_type != HWTSTAMP_TX_OFF))
      return true;
  }
  return false;
}

}  // namespace vireo
