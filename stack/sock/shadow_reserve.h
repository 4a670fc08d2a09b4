// Kernel sockets kept ready for the next socket(2). Making and closing one costs more than all that
// Vireo does for a short connection, so the socket beneath a closed connection is kept and lent to
// the next one.
//
// A kept socket is as socket(2) made it (File::made_in): a program cannot tell it from a new one.
// What the kernel remembers of its creator, the user and the network namespace, is the same too. A
// child of fork(2) gets none of them.
//
// A lent socket keeps its high number here, and the program gets a dup of it, made and closed by
// one system call each. TCP_NODELAY is not passed to the kernel. The loan ends as soon as the
// kernel must keep state for the socket (File::touch()): it is then the program's alone. A program
// that inherits an unused one by exec, posix_spawn or vfork finds TCP_NODELAY as the kernel had it.
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
  /// Most TCP sockets kept, both families, lent or not; at most a sixteenth of RLIMIT_NOFILE.
  /// Further ones are closed as usual.
  static constexpr unsigned kMax = 64;

  /// A socket lent to the program as `number`.
  struct Loan {
    int number = -1;  ///< the lowest free number; negative: no kept socket, or no free number
    uint8_t place = 0;
  };
  /// Lends a socket to a new TCP socket of this family and age(). The caller passes the loan to
  /// set_pristine() or end_loan().
  Loan lend(uint8_t age, int family, bool nonblock, bool cloexec) noexcept;
  /// Takes the socket beneath `h`, whose number it closes, if it is still pristine and of this age.
  /// @return false: nothing was done.
  bool put(Handle h) noexcept;

  // Async-signal-safe.
  /// The process changed its effective or file-system user.
  static void user_changed() noexcept { g_users.fetch_add(1, std::memory_order_relaxed); }
  /// Only one thread changed its user: nothing is lent from now on.
  static void users_differ() noexcept { g_users_differ.store(true, std::memory_order_relaxed); }

  // A fork child has all numbers of its parent, so a kernel socket may then belong to two
  // processes. The user of a process may change, too. Either begins a new age.
  /// Call before making a socket. @return its age, 1 to kLastAge; 0: it cannot be kept.
  uint8_t age() noexcept;
  /// Its File is in the table: marks it pristine, if the age is the same. `loan`: if it was lent.
  void set_pristine(File& f, uint8_t age, const Loan& loan) noexcept;
  /// Makes a lent socket the program's alone and sets its options on the kernel socket. Harmless if
  /// it was not lent.
  void end_loan(File& f) noexcept;
  void end_loan(uint8_t age, const Loan& loan) noexcept;

  /// TCP_NODELAY of a lent socket. @return false (nullopt): it is not lent, call the kernel.
  bool set_nodelay(File& f, bool on) noexcept;
  std::optional<bool> nodelay(const File& f) noexcept;

  /// Closes all kept sockets. The caller touches the existing Files next.
  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS;
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.reset_after_fork(); }

 private:
  struct Shadow {
    UniqueFd fd;              ///< empty: the place is free
    File* lent_to = nullptr;  ///< null: not lent, or its File is not yet made
    int family = 0;
    bool is_lent = false;
    bool nonblock = false;
    bool has_nodelay = false;    ///< value in the kernel socket
    bool wants_nodelay = false;  ///< value that the program set, if lent
  };

  void begin_age() noexcept VIREO_REQUIRES(lock_);
  void end(Shadow& s) noexcept VIREO_REQUIRES(lock_);
  Shadow* of(const File& f) noexcept VIREO_REQUIRES(lock_) {
    // If another thread closed the File meanwhile, `place` is FdTable's.
    const uint32_t place = f.place.load(std::memory_order_relaxed) - 1;
    return place < kMax && shadows_[place].lent_to == &f ? &shadows_[place] : nullptr;
  }

  inline static constinit std::atomic<uint32_t> g_users{0};  ///< number of changes
  inline static constinit std::atomic<bool> g_users_differ{false};

  Lock lock_;
  std::array<Shadow, kMax> shadows_ VIREO_GUARDED_BY(lock_);
  static constexpr uint8_t kLastAge = File::kNoDelay - 1;  ///< then it wraps to 1

  uint8_t age_ VIREO_GUARDED_BY(lock_) = 1;
  unsigned last_ VIREO_GUARDED_BY(lock_) = 0;  ///< place of the socket returned last
  unsigned limit_ VIREO_GUARDED_BY(lock_) = 0;
  uint32_t users_ VIREO_GUARDED_BY(lock_) = 0;     ///< g_users when this age began
  int first_number_ VIREO_GUARDED_BY(lock_) = -1;  ///< number of the first socket ever kept
};

}  // namespace vireo
