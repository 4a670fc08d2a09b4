// The settings of connections: immutable values, shared by all connections of the process with
// equal settings, in any engine. A change replaces the value. A connection starts with its
// listener's. State that is individual to a connection is in the Tcb.
//
// Owner: a Tcb holds a reference. Thread: as its Tcb; the table's lock is taken when a connection
// begins, ends or changes a setting.
#pragma once

#include <cstdint>

#include "core/lock.h"
#include "stack/tcp/tcp.h"

namespace vireo::tcp {

class SharedConfig {
 public:
  SharedConfig() noexcept = default;
  SharedConfig(const SharedConfig&) = delete;
  SharedConfig& operator=(const SharedConfig&) = delete;
  ~SharedConfig() { drop(); }

  const Config& operator*() const noexcept { return *config_; }
  const Config* operator->() const noexcept { return config_; }

  /// Sets the value to `c` without the fields that each Tcb has itself, shared with equal ones
  /// (core/shared_values.h). Does nothing if out of memory.
  void set(Config c) noexcept;
  /// As set(), with the current value as changed by `f(Config&)`.
  template <class F>
  void change(F&& f) noexcept {
    Config c = *config_;
    f(c);
    set(c);
  }

  /// Lock of the table, for fork(): it must be free in the child.
  static Lock& lock() noexcept;

 private:
  void drop() noexcept;
  static const Config kDefault;
  const Config* config_ = &kDefault;  ///< an entry of the table, or kDefault
};

}  // namespace vireo::tcp
