// The mlx5 back end: as the verbs back end (dev/verbs) in all that is not per packet, but its rings
// are driven directly, in the layouts of mlx5dv.h. libmlx5 is loaded by the first open.
// Owner, thread: as verbs.h says. Source: mlx5dv(7), mlx5dv_init_obj(3).
#pragma once

#include "dev/verbs/verbs.h"

namespace vireo {

/// As open_verbs(), and with its errors. Where the device is not an mlx5, or its rings cannot be
/// had, it is the verbs device, and the log says why; caps().kind tells which.
Result<std::unique_ptr<Device>> open_mlx5(const VerbsTarget& target, Arena& arena,
                                          const VerbsOptions& options = {});

}  // namespace vireo
