// Owner: none. Thread: any. errno stays.
#pragma once

#include <ctime>

#include "core/clock.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {

/// Sleeps, unless a signal comes first.
inline void pause_for(Duration d) noexcept {
  const timespec pause{d.s(), (d - Duration::s(d.s())).ns()};
  sys(SYS_nanosleep, reinterpret_cast<long>(&pause));
}

}  // namespace vireo::xdp
