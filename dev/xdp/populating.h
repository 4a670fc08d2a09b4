// Faults in the arena's pages while the driver installs the program; the opening thread sleeps
// meanwhile. The registration, which pins the pages, allocates those still missing.
// Owner: open_xdp(). Thread: the one that opens a device.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <span>

#include "core/arena.h"

namespace vireo::xdp {

class Populating {
 public:
  /// Starts in its own thread. Without a thread, or before Linux 5.14, it does nothing.
  explicit Populating(const Arena& arena) noexcept;
  /// Stops after the current huge page; memory shared by processes is finished.
  ~Populating();
  Populating(const Populating&) = delete;
  Populating& operator=(const Populating&) = delete;

 private:
  static void* run(void* self) noexcept;
  static void collapse(std::span<std::byte> piece) noexcept;

  std::span<std::byte> memory_;
  pthread_t thread_{};
  bool is_shared_;
  bool is_running_ = false;
  std::atomic<bool> is_over_{false};
};

}  // namespace vireo::xdp
