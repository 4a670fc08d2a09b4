// Handing a carried connection over to the kernel, with all that it has queued. The calls that ask
// for it are in calls.h. Owner: none (functions).
#pragma once

#include "core/carriage.h"
#include "core/result.h"
#include "stack/sock/file.h"

namespace vireo {

/// Control lock held, the engine's not. Errors: it is carried on.
Result<void> hand_over_connection(File& f, const Refusal& why);

}  // namespace vireo
