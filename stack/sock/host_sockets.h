// What other sockets of the host have: our ports, and groups to which we send.
// Owner: Stack. Thread: as each part says.
#pragma once

#include <algorithm>

#include "stack/sock/host_groups.h"
#include "stack/sock/sharer_watch.h"

namespace vireo {

struct HostSockets {
  SharerWatch ports;
  HostGroups groups;

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
    ports.fork_child();
    groups.fork_child();
  }
};

}  // namespace vireo
