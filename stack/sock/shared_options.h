// The options of TCP sockets, of which many sockets have the same: a value that is not changed but
// replaced, and shared by all sockets of a Stack that have it. A connection has its listener's
// until its program sets one of its own, and then those of the others for whom it set that too.
//
// Owner: SharedOptions holds a reference; OptionsTable, of the Stack, none. Thread: any for the
// table, whose lock is a leaf; a SharedOptions as the File in which it lies: replaced under the
// control lock and, once there is an engine, the engine's too, read under either.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "core/lock.h"

namespace vireo {

struct SocketOptions;  // stack/sock/options.h
struct OptionsBlock;

class SharedOptions {
 public:
  SharedOptions() noexcept;  ///< SocketOptions{}
  SharedOptions(const SharedOptions& o) noexcept;
  SharedOptions(SharedOptions&& o) noexcept : SharedOptions() { std::swap(options_, o.options_); }
  SharedOptions& operator=(SharedOptions o) noexcept {
    std::swap(options_, o.options_);
    return *this;
  }
  ~SharedOptions();

  const SocketOptions& operator*() const noexcept { return *options_; }
  const SocketOptions* operator->() const noexcept { return options_; }

 private:
  friend class OptionsTable;
  explicit SharedOptions(const SocketOptions& o) noexcept : options_(&o) {}
  const SocketOptions* options_;  ///< of a block, or the default ones, which are in none
};

class OptionsTable {
 public:
  /// Equal to `o`, and shared with others that are, as far as a look at the few blocks that were
  /// found last tells. nullopt: no memory.
  std::optional<SharedOptions> share(const SocketOptions& o);
  ControlLock& lock() { return lock_; }

 private:
  friend class SharedOptions;
  void drop(OptionsBlock& b) noexcept;

  ControlLock lock_;
  OptionsBlock* first_ VIREO_GUARDED_BY(lock_) = nullptr;  ///< the block found last
};

}  // namespace vireo
