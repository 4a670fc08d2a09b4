// A worker is a process that accepts connections from a listener that it has from its parent, and
// that other processes serve, too (nginx). Such a listener is the kernel's, which gives each
// connection to whoever accepts first. But once this process serves several connections at a time,
// Vireo's listener joins the kernel's: this process then gets its part of the SYNs, beside the
// other workers that joined, and the kernel's what none of them takes. One that serves one
// connection after the other would let a connection wait that was given to it, so it does not join;
// and one that joined gets none while it does not come back to wait for them, or is stopped. What
// it has got and does not come for goes to the kernel's listener, and so to the others.
//
// Owner: Stack. Thread: any.
#pragma once

#include <atomic>
#include <cstdint>

#include "stack/sock/file.h"

namespace vireo {

class Worker {
 public:
  /// A kernel's listener that others serve, too, gave the program a connection, whose File is `f`.
  /// @return whether Vireo's shall join it: the program has another such connection open.
  bool accepted(File& f) noexcept;
  bool may_join() const noexcept { return may_join_.load(std::memory_order_relaxed); }
  /// It could not join.
  void join_no_more() noexcept { may_join_.store(false, std::memory_order_relaxed); }
  /// That File is closed.
  void closed() noexcept { open_.fetch_sub(1, std::memory_order_relaxed); }
  /// Vireo's listener has joined, in this engine.
  void joined(Engine& e) noexcept { engine_.store(&e, std::memory_order_release); }
  bool has_joined() const noexcept { return engine_.load(std::memory_order_acquire) != nullptr; }

  // ---- once it has joined. No lock held
  /// A wait for connections finds nothing to do.
  void waits(Instant now) noexcept;
  /// A wait returns to the program, whatever for.
  void returns(Instant now) noexcept;
  /// Thread: the helper. @return when to call again.
  Duration tend(Instant now) noexcept;

  /// Its connections are the parent's.
  void fork_child() noexcept;

 private:
  void accept_until(Instant until) noexcept;

  std::atomic<int32_t> open_{0};  ///< accepted from the kernel, and not closed
  std::atomic<bool> may_join_{true};
  std::atomic<Engine*> engine_{nullptr};
  std::atomic<bool> waits_{false};
  std::atomic<bool> gave_{false};     ///< since it waited last, what could be given
  std::atomic<int64_t> until_ns_{0};  ///< what was said last
};

}  // namespace vireo
