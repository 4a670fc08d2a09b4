// The options of TCP sockets. Many sockets have equal options, so all sockets of a Stack with equal
// options share one immutable value, which is replaced, not changed. A connection starts with its
// listener's. If its program sets one of its own, it then shares with those that set the same.
//
// Owner: a reference is SharedOptions's, the table the Stack's. Thread: as the File in which it
// lies: replaced under the control lock and, once there is an engine, the engine's too, read under
// either.
#pragma once

#include <optional>
#include <utility>

#include "core/shared_values.h"

namespace vireo {

class Stack;               // stack/sock/stack.h
struct SocketOptions;      // stack/sock/options/values.h
struct OptionsWithConfig;  // stack/sock/options/options.h
using OptionsTable = SharedValues<OptionsWithConfig, SocketOptions>;
namespace tcp {
struct Config;
}

class SharedOptions {
 public:
  SharedOptions() noexcept;  ///< SocketOptions{} and tcp::Config{}
  SharedOptions(const SharedOptions& o) noexcept;
  SharedOptions(SharedOptions&& o) noexcept : SharedOptions() { std::swap(options_, o.options_); }
  SharedOptions& operator=(SharedOptions o) noexcept {
    std::swap(options_, o.options_);
    return *this;
  }
  ~SharedOptions();
  /// A reference to the value equal to `o`. nullopt: no memory.
  static std::optional<SharedOptions> share(Stack& stack, const SocketOptions& o);

  const SocketOptions& operator*() const noexcept { return *options_; }
  const SocketOptions* operator->() const noexcept { return options_; }
  /// The initial configuration of a connection with these options (tcp_config()).
  const tcp::Config& config() const noexcept;

 private:
  explicit SharedOptions(const SocketOptions& o) noexcept : options_(&o) {}
  const SocketOptions* options_;  ///< in a table, except the defaults
};

}  // namespace vireo
