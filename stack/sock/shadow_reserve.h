// Kernel sockets kept ready for the next socket(2). To make one and to end it costs more than all
// that Vireo does for a short connection, so one that lay beneath a closed connection is kept and
// lent to the next socket.
//
// A kept socket is as socket(2) made it (File::made_in): nobody can tell it from a new one. What
// the kernel remembers of its maker is the same, too: the user and the network namespace. A child
// of fork(2) has none of them.
//
// A lent socket keeps its high number here, and the program has a dup of it, which is made and
// closed by one call each. The kernel is not told of TCP_NODELAY. Both end as soon as the kernel is
// to remember something of the socket (File::touch()): it is the program's alone from then on. A
// program that inherits an unused one by exec, posix_spawn or vfork finds TCP_NODELAY as the kernel
// had it.
// Owner: Stack. Thread: any. Guard: its own lock, a leaf, which may be taken under an engine's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "core/fd.h"
#include "core/lock.h"
#include "stack/sock/file.h"

namespace vireo {

class ShadowReserve {
 public:
  /// TCP sockets of both families, lent or not, or a sixteenth of RLIMIT_NOFILE. More are closed as
  /// ever.
  static constexpr unsigned kMax = 64;

  /// One that was lent to a program, under `number`.
  struct Loan {
    int number = -1;  ///< the lowest that was free; negative: none is there, or no number is
    uint8_t place = 0;
  };
  /// For a new TCP socket of the family, of this age(). The loan is for set_pristine(), or
  /// end_loan().
  Loan lend(uint8_t age, int family, bool nonblock, bool cloexec) noexcept;
  /// Takes the socket beneath a number that is closed with it, if it is pristine still and of this
  /// age. @return false: nothing was done.
  bool put(Handle h) noexcept;

  // Async-signal-safe.
  /// The process has another user, effective or for files.
  static void user_changed() noexcept { g_users.fetch_add(1, std::memory_order_relaxed); }
  /// One thread of it has: from now on nothing is lent.
  static void users_differ() noexcept { g_users_differ.store(true, std::memory_order_relaxed); }

  // A child has all numbers of its parent: what lies beneath is not one process's any more. Nor is
  // it one user's, who may change: with either a new age begins.
  /// Before a socket is made: the age it is of, 1 to kLastAge; 0: it cannot be kept.
  uint8_t age() noexcept;
  /// When its File is in the table: it is pristine, if that is the age still. `loan`: it was lent.
  void set_pristine(File& f, uint8_t age, const Loan& loan) noexcept;
  /// What was lent is the program's alone from now on, and its kernel socket as its options say.
  /// Harmless where nothing is.
  void end_loan(File& f) noexcept;
  void end_loan(uint8_t age, const Loan& loan) noexcept;

  /// TCP_NODELAY of one that is lent. @return false: it is not, ask the kernel.
  bool set_nodelay(File& f, bool on) noexcept;
  std::optional<bool> nodelay(const File& f) noexcept;

  /// Closes them all. Files that are there are touched next.
  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS;
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.reset_after_fork(); }

 private:
  struct Shadow {
    UniqueFd fd;              ///< none: the place is empty
    File* lent_to = nullptr;  ///< null: to nobody, or its File is still made
    int family = 0;
    bool is_lent = false;
    bool nonblock = false;
    bool has_nodelay = false;    ///< the kernel's socket
    bool wants_nodelay = false;  ///< the program, of one that is lent
  };

  void begin_age() noexcept VIREO_REQUIRES(lock_);
  void end(Shadow& s) noexcept VIREO_REQUIRES(lock_);
  Shadow* of(const File& f) noexcept VIREO_REQUIRES(lock_) {
    // Of a File that another thread has closed meanwhile it is FdTable's.
    const uint32_t place = f.place.load(std::memory_order_relaxed) - 1;
    return place < kMax && shadows_[place].lent_to == &f ? &shadows_[place] : nullptr;
  }

  inline static constinit std::atomic<uint32_t> g_users{0};  ///< how often there was another
  inline static constinit std::atomic<bool> g_users_differ{false};

  Lock lock_;
  std::array<Shadow, kMax> shadows_ VIREO_GUARDED_BY(lock_);
  static constexpr uint8_t kLastAge = File::kNoDelay - 1;  ///< after it the first comes again

  uint8_t age_ VIREO_GUARDED_BY(lock_) = 1;
  unsigned last_ VIREO_GUARDED_BY(lock_) = 0;  ///< place of the one that came back last
  unsigned limit_ VIREO_GUARDED_BY(lock_) = 0;
  uint32_t users_ VIREO_GUARDED_BY(lock_) = 0;     ///< g_users of this age
  int first_number_ VIREO_GUARDED_BY(lock_) = -1;  ///< number of the first ever kept
};

}  // namespace vireo
