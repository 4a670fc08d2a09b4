// The arena's pages, made while the interface is given its program: that sleeps for what the pages
// take, a third of ten milliseconds and more, which the registration (pinning) would add.
// Owner: open_xdp(). Thread: the one that opens a device.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <span>

namespace vireo::xdp {

class Populating {
 public:
  /// Begins, in a thread of its own. Without one, or before Linux 5.14, nothing happens.
  explicit Populating(std::span<std::byte> memory) noexcept;
  /// Waits for its end.
  ~Populating();
  Populating(const Populating&) = delete;
  Populating& operator=(const Populating&) = delete;

 private:
  static void* run(void* self) noexcept;

  std::span<std::byte> memory_;
  pthread_t thread_{};
  bool is_running_ = false;
};

}  // namespace vireo::xdp
