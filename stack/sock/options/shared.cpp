// References to shared options: copy, release, find or make.
#include "stack/sock/options/shared.h"

#include "stack/sock/options/options.h"
#include "stack/sock/stack.h"

namespace vireo {
namespace {

constinit const OptionsWithConfig kDefault;

}  // namespace

SharedOptions::SharedOptions() noexcept : options_(&kDefault) {}

SharedOptions::SharedOptions(const SharedOptions& o) noexcept : options_(o.options_) {
  if (options_ != &kDefault) OptionsTable::hold(static_cast<const OptionsWithConfig*>(options_));
}

SharedOptions::~SharedOptions() {
  if (options_ != &kDefault) OptionsTable::drop(static_cast<const OptionsWithConfig*>(options_));
}

std::optional<SharedOptions> SharedOptions::share(Stack& stack, const SocketOptions& o) {
  const SocketOptions* shared = stack.options_table().find_or_make(o, stack);
  if (shared == nullptr) return std::nullopt;
  return SharedOptions(*shared);
}

const tcp::Config& SharedOptions::config() const noexcept {
  return static_cast<const OptionsWithConfig*>(options_)->config;
}

}  // namespace vireo
