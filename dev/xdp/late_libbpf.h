// libbpf, loaded when the first device is opened: most programs under LD_PRELOAD (a shell and its
// children) open no device, and libbpf with its dependencies would be half of the cost of
// preloading. A host without libbpf can still run every program. late_libbpf.cpp defines the libbpf
// functions we use as hidden symbols that call the loaded ones.
// Owner: process, never unloaded. Thread: any. Source: dlopen(3).
#pragma once

#include "core/result.h"

namespace vireo::xdp {

/// Must succeed before any libbpf function is called. Errors: ENOENT no libbpf, or another major
/// version.
Result<void> load_libbpf();

}  // namespace vireo::xdp
