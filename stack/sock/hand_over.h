// Hands a carried connection over to the kernel, with all its queued data. The calls that request
// it are in calls.h. Owner: none (functions).
#pragma once

#include "core/carriage.h"
#include "core/result.h"
#include "stack/sock/file.h"

namespace vireo {

/// Control lock held, the engine's not. On an error the connection stays carried.
Result<void> hand_over_connection(File& f, const Refusal& why);

}  // namespace vireo
