// The global variables of the steering program (steer_maps.bpf.h) as user space maps them. For .cpp
// files: the skeleton carries the whole program.
#pragma once

#include "steer.skel.h"

namespace vireo::xdp {

struct SteerArrays : steer_bpf::steer_bpf__bss {};

}  // namespace vireo::xdp
