// The doorbell of a shared wire; also detects the death of the peer. Owner: ShmDevice. Thread:
// holder of the engine's lock.
#pragma once

#include "core/fd.h"
#include "core/result.h"

namespace vireo {

/// Doorbell and peer watch: an epoll set with the Unix socket between the two ends.
class ShmBell {
 public:
  /// `socket` is WireSeat::bell. Errors: of epoll_create1(2).
  static Result<ShmBell> create(UniqueFd socket, bool host);

  int wait_fd() const { return epoll_.get(); }
  /// Wakes the peer.
  void ring() noexcept;
  /// Reads all wake-ups received, and accepts the peer's connection. Other sleepers then miss these
  /// wake-ups: look for frames afterwards. @return true: the peer was connected and is gone.
  bool clear() noexcept;
  /// Queries the kernel. @return true: the peer was connected and is gone.
  bool peer_died() noexcept;

 private:
  void accept_peer() noexcept;
  UniqueFd epoll_;
  UniqueFd listener_;
  UniqueFd peer_;
};

}  // namespace vireo
