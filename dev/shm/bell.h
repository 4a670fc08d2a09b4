// The doorbell of a shared wire; also tells when the peer has died. Owner: ShmDevice. Thread:
// holder of the engine's lock.
#pragma once

#include "core/fd.h"
#include "core/result.h"

namespace vireo {

/// The doorbell and the watch over the peer: an epoll set that holds the Unix socket between the
/// two ends.
class ShmBell {
 public:
  /// `socket` is WireSeat::bell. Errors: of epoll_create1(2).
  static Result<ShmBell> create(UniqueFd socket, bool host);

  int wait_fd() const { return epoll_.get(); }
  /// Wakes the peer.
  void ring() noexcept;
  /// Takes the wake-ups received, and the peer's connection. Whoever else sleeps does not see them
  /// then: look for frames after this. @return true: the peer was there and is no more.
  bool clear() noexcept;
  /// Asks the kernel. @return true: the peer was there and is no more.
  bool peer_died() noexcept;

 private:
  void accept_peer() noexcept;
  UniqueFd epoll_;
  UniqueFd listener_;
  UniqueFd peer_;
};

}  // namespace vireo
