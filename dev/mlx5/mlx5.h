// The mlx5 back end: like the verbs back end (dev/verbs) except per packet, where it drives the
// rings directly, in the layouts of mlx5dv.h. libmlx5 is loaded by the first open.
// Owner, thread: as in verbs.h. Source: mlx5dv(7), mlx5dv_init_obj(3).
#pragma once

#include "dev/verbs/verbs.h"

namespace vireo {

/// Like open_verbs(), with its errors. If the device is not an mlx5, or its rings cannot be driven,
/// the result is the verbs device and the log gives the reason; caps().kind tells which.
Result<std::unique_ptr<Device>> open_mlx5(const VerbsTarget& target, Arena& arena,
                                          const VerbsOptions& options = {});

}  // namespace vireo
