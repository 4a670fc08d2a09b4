// The error queue of a socket (recv(2) MSG_ERRQUEUE), without ICMP errors: what became of what it
// sent. Time stamps of departure and acknowledgement, and completions of MSG_ZEROCOPY.
//
// Owner: SendReports. Thread: any; its lock is a leaf. Memory: a report of a stamp without payload
// takes none beyond its place, which is kept for the next.
// Source: linux/errqueue.h; Linux net/core/skbuff.c sock_queue_err_skb(),
// __msg_zerocopy_callback().
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/lock.h"

namespace vireo {

/// The fields of a sock_extended_err, and what comes with it.
struct ErrorReport {
  uint32_t error = 0;  ///< errno
  uint8_t origin = 0;  ///< SO_EE_ORIGIN_*
  uint8_t code = 0;
  uint32_t info = 0;
  uint32_t data = 0;
  int64_t time = 0;        ///< ns of CLOCK_REALTIME; 0: none
  uint32_t interface = 0;  ///< by which the frame left; 0: not known
  uint32_t length = 0;     ///< of `bytes`
  bool is_frame = false;   ///< `bytes` begin with an Ethernet header
  std::unique_ptr<std::byte[]> bytes;

  /// Charge to the socket's receive buffer, as Linux's for a sk_buff (x86-64): its head, and a
  /// block of a power of two for the bytes and what surrounds them; the smallest has a size of its
  /// own.
  uint32_t truesize() const noexcept {
    return length <= 192 ? kLeast : 256 + std::bit_ceil(length + 384);
  }
  static constexpr uint32_t kLeast = 832;
};

class ErrorQueue {
 public:
  /// @return false: the receive buffer of `room` bytes has no room for it, or memory is short. It
  /// is lost.
  bool push(ErrorReport&& report, uint64_t room) noexcept;
  /// Call `id` with MSG_ZEROCOPY needs the program's memory no longer. Calls that follow each other
  /// are one report, until it is read.
  bool complete_copy(uint32_t id) noexcept;
  /// The oldest report. `more`: there are others.
  std::optional<ErrorReport> pop(bool& more) noexcept;
  void clear() noexcept;
  /// In the child of a fork.
  void reset_after_fork() noexcept { lock_.reset_after_fork(); }

 private:
  bool append(ErrorReport&& report) noexcept VIREO_REQUIRES(lock_);

  Lock lock_;
  std::vector<ErrorReport> ring_ VIREO_GUARDED_BY(lock_);  ///< the size is a power of two, or zero
  size_t first_ VIREO_GUARDED_BY(lock_) = 0;
  size_t count_ VIREO_GUARDED_BY(lock_) = 0;
  uint64_t charged_ VIREO_GUARDED_BY(lock_) = 0;
};

}  // namespace vireo
