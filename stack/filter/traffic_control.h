// Finds interfaces with tc(8) filters on ingress or egress: qdiscs clsact and ingress, and BPF
// programs at tcx. Owner: none. Thread: as the socket's.
#pragma once

#include <cstdint>
#include <functional>

#include "stack/filter/ruleset.h"
#include "stack/filter/sessions.h"

namespace vireo::filter {

/// Whether a BPF program, by its number in the kernel, is Vireo's and passes all packets on.
using IsOwnProgram = std::function<bool(uint32_t program)>;

/// Needs no capability, except CAP_NET_ADMIN for tcx. The kernel does not notify of changes at tcx;
/// where there is a program of others, reading takes 0.1 s.
Result<void> read_traffic_control(Session& s, Ruleset& to, const IsOwnProgram& is_own);

}  // namespace vireo::filter
