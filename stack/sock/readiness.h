// Readiness of a socket as poll(2) and epoll(7) define it, and notification of changes.
//
// A Watcher is one interested party: an epoll's item or a sleeping thread. It is in the list of one
// ReadySource; a socket in several epolls has several watchers. The engine's up-calls notify them.
// A notification is an edge ("something happened"); readiness() gives the level.
//
// Owner: a File owns its ReadySource. The code that watches owns the Watcher and removes it before
// freeing it. Thread: any; each list has a leaf lock. To lose no wake-up: add(), then readiness().
// Source: epoll(7); Linux net/ipv4/tcp.c tcp_poll and net/core/datagram.c datagram_poll for which
// bits mean what.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>

#include "core/lock.h"

namespace vireo {

/// Event bits are EPOLL*; those of poll(2) have the same values.
using ReadyBits = uint32_t;
/// Sent beside EPOLL* bits: the socket moved from the kernel to Vireo or back, or was closed. Read
/// File::mode() again, and whether the kernel's epoll should watch the descriptor
/// (watches_kernel()).
inline constexpr ReadyBits kModeChanged = 1U << 24;
/// The last descriptor was closed (epoll(7), question 6): the watcher has already been removed from
/// the list and gets no more notifications; remove() stays harmless while the File exists.
inline constexpr ReadyBits kFileClosed = 1U << 25;

/// The kernel socket beneath is about to be replaced, by the program's only thread: take the
/// descriptor out of the program's own epoll, which would keep the old socket.
inline constexpr ReadyBits kLeavesKernel = 1U << 26;
inline constexpr ReadyBits kToldAlways = EPOLLERR | EPOLLHUP | kModeChanged | kLeavesKernel;

inline constexpr ReadyBits kReadyIn = EPOLLIN | EPOLLRDNORM;
inline constexpr ReadyBits kReadyOut = EPOLLOUT | EPOLLWRNORM;

struct Watcher {
  boost::intrusive::list_member_hook<> hook;
  /// Called with the source's leaf lock and perhaps the engine's lock held: may take one innermost
  /// lock of its own and wake a thread; may not call into the engine, files or this source.
  void (*notify)(Watcher& self, ReadyBits happened) noexcept = nullptr;
  ReadyBits interest = ~ReadyBits{0};  ///< notify only of these and of kToldAlways
};

class ReadySource {
 public:
  void add(Watcher& w) noexcept {
    const LockGuard guard(lock_);
    list_.push_back(w);
    // Pairs with the load in notify(): after add() the caller reads readiness() under the engine's
    // lock, and so sees any event that a notify() before this store did not pass on.
    watched_.store(true, std::memory_order_seq_cst);
  }
  /// On return, `notify` of `w` is not running and will not run again.
  void remove(Watcher& w) noexcept {
    const LockGuard guard(lock_);
    if (!w.hook.is_linked()) return;  // dismissed
    list_.erase(list_.iterator_to(w));
    watched_.store(!list_.empty(), std::memory_order_relaxed);
  }
  /// Notifies of an event. Costs one load if there are no watchers.
  void notify(ReadyBits happened) noexcept {
    if (watched_.load(std::memory_order_seq_cst)) [[unlikely]]
      tell(happened);
  }
  /// The File is closed: removes every watcher and notifies it of kFileClosed.
  void dismiss() noexcept {
    const LockGuard guard(lock_);
    while (!list_.empty()) {
      Watcher& w = list_.front();
      list_.pop_front();
      w.notify(w, kFileClosed);
    }
    watched_.store(false, std::memory_order_relaxed);
  }
  bool is_watched() const noexcept { return watched_.load(std::memory_order_relaxed); }
  /// In the child of a fork: the watchers belong to the parent's threads.
  void reset_after_fork() noexcept VIREO_NO_THREAD_ANALYSIS {
    lock_.reset_after_fork();
    list_.clear();
    watched_.store(false, std::memory_order_relaxed);
  }

 private:
  void tell(ReadyBits happened) noexcept;  ///< notifies all watchers

  using List = boost::intrusive::list<
      Watcher,
      boost::intrusive::member_hook<Watcher, boost::intrusive::list_member_hook<>, &Watcher::hook>,
      boost::intrusive::constant_time_size<false>>;
  List list_ VIREO_GUARDED_BY(lock_);
  Lock lock_;
  std::atomic<bool> watched_{false};  // last: File puts members of its own in the rest of the word
};

}  // namespace vireo
