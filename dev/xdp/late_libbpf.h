// libbpf, loaded when the first device opens and not with the library: most programs under
// LD_PRELOAD (a shell, and all that it starts) open no device, and libbpf with its own libraries
// would be half of what preloading costs them; a host without it still runs every program. The
// functions that the layer uses are defined in late_libbpf.cpp, hidden, and jump into it. Owner:
// process, never unloaded. Thread: any. Source: dlopen(3).
#pragma once

#include "core/result.h"

namespace vireo::xdp {

/// To succeed before any libbpf function is called. Errors: ENOENT no libbpf, or one of another
/// major version.
Result<void> load_libbpf();

}  // namespace vireo::xdp
