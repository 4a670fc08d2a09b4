// The mirror of the kernel's network state: dumps links, addresses, rules, routes and neighbours,
// then follows their changes and publishes snapshots. Bound to the network namespace of the thread
// that opened it. Owner: the process's network context. Thread: open() anywhere, process() the
// helper only; store() and request_neighbour() any. In the child of a fork the object can only be
// destroyed. Source: rtnetlink(7), netlink(7). All descriptors are CLOEXEC, and used by direct
// system calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/address.h"
#include "core/clock.h"
#include "core/result.h"
#include "core/types.h"
#include "stack/net/snapshot.h"

namespace vireo::net {

struct MirrorOptions {
  uint32_t receive_buffer_bytes =
      4U << 20;  ///< of the netlink socket; forced if we have CAP_NET_ADMIN
  uint32_t min_publish_interval_us = 2000;  ///< closer changes share one snapshot
  uint32_t open_timeout_ms = 5000;          ///< for the first dump
};

/// Counters, relaxed: readable by any thread.
struct MirrorStats {
  std::atomic<uint64_t> messages{0};       ///< netlink messages received
  std::atomic<uint64_t> published{0};      ///< snapshots
  std::atomic<uint64_t> overruns{0};       ///< ENOBUFS: the kernel dropped notifications
  std::atomic<uint64_t> dumps{0};          ///< completed, of one table each
  std::atomic<uint64_t> kicks{0};          ///< neighbour requests given to the kernel
  std::atomic<uint64_t> kicks_refused{0};  ///< by the kernel: no CAP_NET_ADMIN, interface gone
  std::atomic<uint64_t> kicks_dropped{0};  ///< queue to the helper full
};

class Mirror {
 public:
  /// Opens the session and waits for the first complete snapshot. Errors: of socket(2), bind(2);
  /// ETIMEDOUT.
  static Result<std::unique_ptr<Mirror>> open(const MirrorOptions& options = {});
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// Readable (POLLIN) when process() has work. Constant.
  int fd() const;
  /// Reads messages, sends queued neighbour requests, and publishes a snapshot if something changed
  /// and min_publish_interval_us has passed. Bounded work, no waiting (though the kernel may take
  /// its RTNL lock for a request). @return true: published.
  bool process();

  SnapshotStore& store();
  /// Asks the kernel to resolve or confirm a neighbour (RTM_NEWNEIGH with NTF_USE, needs
  /// CAP_NET_ADMIN); the result arrives as a new snapshot. Lock-free: queued for the helper, which
  /// is woken if it sleeps. @return false: queue full, try later.
  bool request_neighbour(IfIndex ifindex, const IpAddr& addr) noexcept;
  const MirrorStats& stats() const;

 private:
  class Session;
  explicit Mirror(std::unique_ptr<Session> s);
  std::unique_ptr<Session> session_;
};

}  // namespace vireo::net
