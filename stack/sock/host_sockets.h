// What other sockets of the host have: our ports, and groups to which we send.
// Owner: Stack. Thread: as each part says.
#pragma once

#include <algorithm>

#include "dev/device_group.h"
#include "stack/sock/host_groups.h"
#include "stack/sock/sharer_watch.h"

namespace vireo {

struct HostSockets {
  DeviceGroup* group = nullptr;  ///< of the process; constant once there are engines
  SharerWatch ports;
  HostGroups groups;

  /// As DeviceGroup::filter_of_copied().
  int filter_of_copied() const noexcept {
    return group != nullptr ? group->filter_of_copied() : -1;
  }
  /// By the helper's thread. @return when to call again.
  Duration tend(const Stack& stack, Instant now) {
    return std::min(ports.tend(stack, now), groups.tend(now));
  }
  void fork_prepare() noexcept {
    ports.fork_prepare();
    groups.fork_prepare();
  }
  void fork_parent() noexcept {
    groups.fork_parent();
    ports.fork_parent();
  }
  void fork_child() noexcept {
    group = nullptr;
    ports.fork_child();
    groups.fork_child();
  }
};

}  // namespace vireo
