// A connection of the kernel's that this process carries from now on: one that the kernel accepted
// for a listener that several processes share (prefork servers), or one that the parent accepted
// and left to this process (servers that fork for each connection). VIREO_PROMOTE says when: at its
// accept, or once it proves long-lived. The former costs short connections, the latter does not.
//
// Proof: by what it has received (kProof, kMinAge). It must be the socket of this process alone
// (Holders), and the process must have one thread: another one could sleep in the kernel on the
// old socket. With auto, processors must not be short either (processor_time.h).
//
// Frames are brought here first, then the kernel's state is read by TCP_REPAIR. A frame that was on
// its way through the kernel meanwhile finds the old kernel socket, which drops it, for a moment
// longer; without that socket the kernel would reset the connection. It goes with the connection at
// the latest: the peer may use the tuple again, and that SYN is for the listener.
// Owner: Stack. Thread: any. Guard: lock_, a leaf.
#pragma once

#include <atomic>
#include <deque>

#include "core/address.h"
#include "core/carriage.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/lock.h"
#include "core/slab.h"
#include "stack/sock/file.h"
#include "stack/sock/processor_time.h"

namespace vireo {

class Promotion {
 public:
  /// `fd`: the kernel's socket; the program has not got the number yet, and `f` is not in the
  /// table. On success the number is that of a placeholder. The listener's control lock not held.
  Carried<void> take_over(File& f, int fd, const Endpoint& local, const Endpoint& peer);
  /// The program is about to wait for connections on `listener`: makes the engine that will carry
  /// them, which takes milliseconds, before the first of them comes. No lock held.
  void prepare(Handle listener) noexcept {
    if (!is_prepared_.load(std::memory_order_relaxed)) [[unlikely]]
      prepare_first(listener);
  }
  /// The program leaves accepted connections to its children: the kernel keeps them.
  void stop() noexcept { is_stopped_.store(true, std::memory_order_relaxed); }

  bool is_stopped() const noexcept { return is_stopped_.load(std::memory_order_relaxed); }

  // ---- VIREO_PROMOTE=auto and proven
  /// The engine that carries is made by a thread of its own: it takes milliseconds, for which the
  /// program shall not stand still.
  enum class Making : uint8_t { kNotBegun, kBegun, kDone, kFailed };
  /// Begins that, if it is not begun. Thread: any.
  Making make_engine(Stack& stack, const Endpoint& local) noexcept;
  /// Nothing is to be taken over now: the process does not get the processors that it needs.
  bool lacks_processors(const Stack& stack, Instant now) noexcept;
  /// An accepted connection, which the kernel has or may get: it may prove itself.
  void watch(File& f) noexcept;
  /// A call has received something by the kernel. No lock held. The connection may be carried
  /// afterwards.
  void received(Handle h) noexcept {
    uint8_t left = h->receives_left.load(std::memory_order_relaxed);
    if (left == 0) return;
    // Another thread may have closed it: then nothing may be counted for what the File is now.
    if (h->receives_left.compare_exchange_strong(left, left - 1, std::memory_order_relaxed) &&
        left == 1) [[unlikely]]
      consider(h);
  }

  /// Closes old kernel sockets whose time is over; by the helper's thread. @return when to call
  /// again.
  Duration tend(Instant now) noexcept;

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  /// Closes the copy of the parent's descriptor.
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS;

 private:
  /// A connection whose flow has the old kernel socket, as its port_holder.
  struct Old {
    Instant since;
    Engine* engine;
    SlabHandle flow;
  };
  struct Maker;

  void prepare_first(Handle listener) noexcept;
  void consider(Handle h) noexcept;
  void take_proven(Handle h, Instant now) noexcept;
  static void* run_maker(void* maker) noexcept;
  Carried<void> move_here(File& f, int fd, const Endpoint& local, const Endpoint& peer);
  int drop_all() noexcept VIREO_REQUIRES(lock_);
  /// @return the first of them: somebody must wake the helper.
  bool note_old(const Old& old) noexcept;

  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> is_prepared_{false};  ///< or nothing is to be promoted at its accept
  std::atomic<Making> making_{Making::kNotBegun};
  std::atomic<int64_t> not_before_ns_{0};  ///< no connection is looked at
  unsigned failures_ = 0;                  ///< in a row; of a process with one thread
  ProcessorTime processor_time_;
  Lock lock_;
  std::deque<Old> old_ VIREO_GUARDED_BY(lock_);
  UniqueFd drop_all_ VIREO_GUARDED_BY(lock_);  ///< a socket filter (eBPF) that drops everything
};

}  // namespace vireo
