// Which process this memory belongs to. A Stack belongs to the process that made it. A child of
// fork(2) has a copy, even if no fork handler ran; a child of vfork(2) has the same memory. So
// every call that makes, opens or closes a part of the Stack checks. getpid(2) would do, but a
// system call is expensive: a page that is zeroed in children (madvise(2), MADV_WIPEONFORK)
// replaces it, and getpid(2) is called only where memory may be shared with a child.
// Owner: Stack. Thread: any.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace vireo {

class Owner {
 public:
  /// This process is the owner.
  Owner() noexcept;
  ~Owner();
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  bool is_here() const noexcept {
    if (mark_->load(std::memory_order_relaxed) != 0 && !may_be_child() &&
        !g_shares_memory.load(std::memory_order_relaxed)) [[likely]]
      return true;
    return ask();
  }
  /// In the child of a fork: makes it the owner of its copy.
  void move_here() noexcept;

  /// This thread may now run in another process, which the page does not show: call is_here().
  static bool may_be_child() noexcept { return t_child != Child::kNone; }
  /// This thread calls vfork(2) next.
  static void before_vfork() noexcept {
    if (t_child == Child::kNone) t_child = Child::kWaitedFor;
  }
  /// That child has ended or runs another program.
  static void after_vfork() noexcept {
    if (t_child == Child::kWaitedFor) t_child = Child::kNone;
  }
  /// This thread calls clone(2) next. A child that the parent waits for and that uses this thread's
  /// storage is as one of vfork(2): a device starts its helper so.
  static void before_clone(unsigned long flags) noexcept {
    if ((flags & (CLONE_VM | CLONE_THREAD)) != CLONE_VM) return;
    if ((flags & (CLONE_VFORK | CLONE_SETTLS)) == CLONE_VFORK)
      before_vfork();
    else
      memory_is_shared();
  }
  /// For good, by another process that runs.
  static bool is_memory_shared() noexcept {
    return g_shares_memory.load(std::memory_order_relaxed);
  }
  /// It makes a process that shares this memory, but not by vfork(2).
  static void memory_is_shared() noexcept {
    t_child = Child::kBesideUs;
    g_shares_memory.store(true, std::memory_order_relaxed);
  }

 private:
  /// Of this thread. A child runs on its parent's thread storage, unless it has its own.
  enum class Child : uint8_t {
    kNone,
    kWaitedFor,  ///< vfork(2): the parent does not run until the child has gone, and then checks
    kBesideUs,   ///< a running process shares the memory; permanent
  };

  bool ask() const noexcept;

  [[gnu::tls_model("initial-exec")]] inline static thread_local constinit Child t_child =
      Child::kNone;
  inline static constinit std::atomic<bool> g_shares_memory{false};
  inline static constinit std::atomic<uint32_t> kUnmarked{0};

  std::atomic<pid_t> pid_;
  std::atomic<uint32_t>* mark_ = &kUnmarked;  ///< nonzero only in the process that wrote it
};

}  // namespace vireo
