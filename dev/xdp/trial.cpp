#include "dev/xdp/trial.h"

#include "dev/xdp/steer.h"

namespace vireo::xdp {

Result<void> try_steering(std::string& refusal) {
  constexpr SteeringSizes kSmall{.flows = 16, .listeners = 16};
  const auto loaded = Steering::load(Interface{}, kSmall, false, &refusal);
  if (!loaded) return std::unexpected(loaded.error());
  return {};
}

}  // namespace vireo::xdp
