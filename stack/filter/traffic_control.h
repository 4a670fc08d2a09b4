// Finds the interfaces where tc(8) has filters on ingress or egress: qdiscs clsact and ingress, and
// BPF programs at tcx. Owner: none. Thread: as the socket's.
#pragma once

#include "stack/filter/ruleset.h"
#include "stack/filter/sessions.h"

namespace vireo::filter {

/// Needs no right, but for tcx CAP_NET_ADMIN. Of changes at tcx the kernel does not tell.
Result<void> read_traffic_control(Session& s, Ruleset& to);

}  // namespace vireo::filter
