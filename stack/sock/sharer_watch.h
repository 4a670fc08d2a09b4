// Follows which sockets of the host have the ports of our UDP sockets, for PortSharers: at each
// bind and join, and again and again by the helper's thread, as the kernel tells nobody of binds.
//
// Only ports of sockets with SO_REUSEADDR or SO_REUSEPORT are looked at: others have theirs alone
// (net/ipv4/udp.c udp_lib_lport_inuse()).
// Owner: Stack. Thread: any; tend() the helper's. Guard: a leaf lock of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/clock.h"
#include "core/lock.h"
#include "stack/net/inet_diag.h"

namespace vireo {

class Stack;

class SharerWatch {
 public:
  /// The UDP sockets at `port` now but those beneath ours, of which PortSharers is to be told; none
  /// if the kernel cannot tell. Some 50 us.
  std::vector<net::DiagSocket> look(uint16_t port);
  /// Some port is watched.
  bool is_active() const noexcept { return is_active_.load(std::memory_order_relaxed); }
  /// The socket with that cookie is carried at `port`, in whatever engine. @return the first port:
  /// somebody must wake the helper.
  bool begin(uint16_t port, uint64_t cookie);
  /// It is closed, or the kernel's. @return no socket of ours needs `port` to be watched any more.
  bool end(uint16_t port, uint64_t cookie) noexcept;
  /// Looks, and tells the engines of changes. @return when to call again.
  Duration tend(const Stack& stack, Instant now);

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS;

 private:
  struct Port {
    uint16_t number;
    std::vector<uint64_t> ours;  ///< cookies
    std::vector<net::DiagSocket> there;
  };
  /// But for those beneath ours.
  static void keep_others(const Port& p, std::vector<net::DiagSocket>& there) noexcept;

  Lock lock_;
  std::vector<Port> ports_ VIREO_GUARDED_BY(lock_);
  std::atomic<bool> is_active_{false};
  Instant due_{};  ///< of the helper's thread
};

}  // namespace vireo
