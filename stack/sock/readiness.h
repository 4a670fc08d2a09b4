// Readiness of a socket as poll(2) and epoll(7) see it, and who wants to hear of changes.
//
// A Watcher is one interested party: an epoll's item, a thread that sleeps. It sits in the list of
// one ReadySource; a socket in several epolls has several watchers. The engine's up-calls notify
// them; a notification is an edge ("something happened"), the level is asked with readiness().
//
// Owner: File owns its ReadySource; whoever watches owns the Watcher and removes it before it ends.
// Thread: any, each list has its leaf lock. No lost wake-up: add() first, then ask readiness().
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
/// Beside EPOLL* in a notification: the socket went from kernel to carried, back, or was closed.
/// Look again at File::mode(), and at whether the kernel's epoll should watch the descriptor
/// (watches_kernel()).
inline constexpr ReadyBits kModeChanged = 1U << 24;
/// The last descriptor is gone (epoll(7), question 6): the watcher has been taken off the list
/// already and will not be notified again; remove() on it stays harmless while the File exists.
inline constexpr ReadyBits kFileClosed = 1U << 25;

inline constexpr ReadyBits kReadyIn = EPOLLIN | EPOLLRDNORM;
inline constexpr ReadyBits kReadyOut = EPOLLOUT | EPOLLWRNORM;

struct Watcher {
  boost::intrusive::list_member_hook<> hook;
  /// Called with the engine's lock (perhaps) and the source's leaf lock held: may take one
  /// innermost lock of its own and wake a thread; may not call into engine, files or this source.
  void (*notify)(Watcher& self, ReadyBits happened) noexcept = nullptr;
  ReadyBits interest = ~ReadyBits{0};  ///< notified only of these; ERR, HUP and kModeChanged always
};

class ReadySource {
 public:
  void add(Watcher& w) noexcept {
    const LockGuard guard(lock_);
    list_.push_back(w);
    // Pairs with the load in notify(): the adder asks readiness() afterwards, under the engine's
    // lock, so that what this notify() missed is seen there.
    watched_.store(true, std::memory_order_seq_cst);
  }
  /// When it returns, notify of `w` neither runs nor will run.
  void remove(Watcher& w) noexcept {
    const LockGuard guard(lock_);
    if (!w.hook.is_linked()) return;  // dismissed
    list_.erase(list_.iterator_to(w));
    watched_.store(!list_.empty(), std::memory_order_relaxed);
  }
  /// Something happened. One load if nobody watches.
  void notify(ReadyBits happened) noexcept {
    if (watched_.load(std::memory_order_seq_cst)) [[unlikely]]
      tell(happened);
  }
  /// The file is closed: every watcher is taken off and told kFileClosed.
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
  /// The child of a fork: the watchers are the parent's threads.
  void reset_after_fork() noexcept VIREO_NO_THREAD_ANALYSIS {
    lock_.reset_after_fork();
    list_.clear();
    watched_.store(false, std::memory_order_relaxed);
  }

 private:
  void tell(ReadyBits happened) noexcept;  ///< all who watch

  using List = boost::intrusive::list<
      Watcher,
      boost::intrusive::member_hook<Watcher, boost::intrusive::list_member_hook<>, &Watcher::hook>,
      boost::intrusive::constant_time_size<false>>;
  List list_ VIREO_GUARDED_BY(lock_);
  Lock lock_;
  std::atomic<bool> watched_{false};  // last: File has members of its own in the rest of the word
};

}  // namespace vireo
