// Finds interfaces with tc(8) filters on ingress or egress: qdiscs clsact and ingress, and BPF
// programs at tcx. Owner: none. Thread: as the socket's.
#pragma once

#include "stack/filter/ruleset.h"
#include "stack/filter/sessions.h"

namespace vireo::filter {

/// Needs no capability, except CAP_NET_ADMIN for tcx. The kernel does not notify of changes at tcx;
/// where there is a program, reading takes 0.1 s.
Result<void> read_traffic_control(Session& s, Ruleset& to);

}  // namespace vireo::filter
