// Loads the steering program without attaching it, to see whether the kernel takes it. Owner: none.
// Thread: any.
#pragma once

#include <string>

#include "core/result.h"

namespace vireo::xdp {

/// Loads the program and lets it go. Errors: as Steering::load(); `refusal` is then the last line
/// of the kernel's verifier, empty if it was not asked.
Result<void> try_steering(std::string& refusal);

}  // namespace vireo::xdp
