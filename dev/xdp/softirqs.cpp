#include "dev/xdp/softirqs.h"

#include <linux/membarrier.h>

#include <ctime>

#include "dev/xdp/uapi.h"

namespace vireo::xdp {

void wait_for_softirqs() noexcept {
  // EINVAL with nohz_full: then time has to do, a softirq lasts 2 ms
  // (net.core.netdev_budget_usecs).
  if (sys(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0) return;
  constexpr timespec kLong{0, 20'000'000};
  sys(SYS_nanosleep, reinterpret_cast<long>(&kLong));
}

}  // namespace vireo::xdp
