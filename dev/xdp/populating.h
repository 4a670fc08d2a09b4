// Faults the arena's pages in while the driver installs the program, during which the opening
// thread sleeps. Pages that are still missing then are made by the registration, as it pins them.
// Owner: open_xdp(). Thread: the one that opens a device.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <span>

namespace vireo::xdp {

class Populating {
 public:
  /// Begins, in a thread of its own. Without one, or before Linux 5.14, nothing happens.
  explicit Populating(std::span<std::byte> memory) noexcept;
  /// Ends it, a huge page at most from now.
  ~Populating();
  Populating(const Populating&) = delete;
  Populating& operator=(const Populating&) = delete;

 private:
  static void* run(void* self) noexcept;

  std::span<std::byte> memory_;
  pthread_t thread_{};
  bool is_running_ = false;
  std::atomic<bool> is_over_{false};
};

}  // namespace vireo::xdp
