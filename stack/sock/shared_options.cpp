#include "stack/sock/shared_options.h"

#include "stack/sock/options.h"

namespace vireo {
namespace {

const SocketOptions& default_options() {
  static const SocketOptions options;
  return options;
}

}  // namespace

SharedOptions::SharedOptions() noexcept : options_(&default_options()) {}

SharedOptions::SharedOptions(const SharedOptions& o) noexcept : options_(o.options_) {
  if (options_ != &default_options()) OptionsTable::hold(options_);
}

SharedOptions::~SharedOptions() {
  if (options_ != &default_options()) OptionsTable::drop(options_);
}

std::optional<SharedOptions> SharedOptions::share(OptionsTable& table, const SocketOptions& o) {
  const SocketOptions* shared = table.find_or_make(o);
  if (shared == nullptr) return std::nullopt;
  return SharedOptions(*shared);
}

}  // namespace vireo
