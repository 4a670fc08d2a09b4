// The settings of connections, immutable and shared by all connections of the process that have the
// same, whatever their engine; a change replaces the value. A connection begins with its
// listener's; state that differs between any two lies in the Tcb.
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

  /// Equal to `c` but for what each Tcb has for itself, and shared with others that are
  /// (core/shared_values.h). Without memory nothing changes.
  void set(Config c) noexcept;
  /// As set(), from what is: `f(Config&)` changes it.
  template <class F>
  void change(F&& f) noexcept {
    Config c = *config_;
    f(c);
    set(c);
  }

  /// For fork(), whose child must find it free.
  static Lock& lock() noexcept;

 private:
  void drop() noexcept;
  static const Config kDefault;
  const Config* config_ = &kDefault;  ///< of the table, or the default ones, which are not
};

}  // namespace vireo::tcp
