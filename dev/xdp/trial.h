// Loads the steering program without attaching it, to test whether the kernel accepts it. Owner:
// none. Thread: any.
#pragma once

#include <string>

#include "core/result.h"

namespace vireo::xdp {

/// Loads the program and unloads it. Errors: as Steering::load(); `refusal` is then the last line
/// of the kernel's verifier, empty if it did not run.
Result<void> try_steering(std::string& refusal);

}  // namespace vireo::xdp
