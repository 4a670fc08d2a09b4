// What all sockets of a process share: settings, rules, the engines, the mirror of the kernel's
// network state, counters, and waiters. Made when the first socket asks, so that preloading `ls`
// costs nothing. A class and not globals, so that a test can have two hosts in one process; a
// program has one, installed by preload.
// Owner: process (or a test). Thread: any, unless said otherwise.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/kernel_defaults.h"
#include "config/rules.h"
#include "config/settings.h"
#include "core/fd.h"
#include "core/lock.h"
#include "core/sleep.h"
#include "core/stats_layout.h"
#include "stack/engine/engine.h"
#include "stack/engine/helper.h"
#include "stack/net/netlink.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/libc.h"
#include "stack/sock/mourner.h"
#include "stack/sock/options/shared.h"
#include "stack/sock/owner.h"
#include "stack/sock/readiness.h"
#include "stack/sock/rings.h"
#include "stack/sock/spare_shadows.h"
#include "stack/sock/spin_places.h"

namespace vireo {

namespace filter {
class Filter;
}

// ---- signals: a call that polls must return EINTR as one that sleeps in the kernel would
/// Counts the handlers that ran on this thread. Preload's wrapper calls note_signal() after the
/// program's handler. Async-signal-safe.
struct SignalState {
  volatile uint32_t count = 0;
  const EventFd* volatile sleeping_on = nullptr;  ///< this thread is about to sleep: wake it
  volatile uint32_t in_kernel =
      0;  ///< waits in the kernel's own call, no lock held: handlers may run
  volatile uint32_t deferred = 0;  ///< handlers put off to the end of the call (preload)
};
[[gnu::tls_model("initial-exec")]] inline thread_local constinit SignalState t_signals;

inline void note_signal() noexcept {
  t_signals.count = t_signals.count + 1;
  const EventFd* e = t_signals.sleeping_on;
  if (e != nullptr) const_cast<EventFd*>(e)->signal();  // write(2) is async-signal-safe
}
/// Taken at the start of a call: has a handler run since?
class SignalMark {
 public:
  SignalMark() noexcept : at_(t_signals.count) {}
  bool pending() const noexcept { return t_signals.count != at_ || t_signals.deferred != 0; }

 private:
  uint32_t at_;
};
/// Around a call of libc that may block in the kernel: handlers run at once there, so that
/// SA_RESTART means what it says. No lock may be held.
class KernelWait {
 public:
  KernelWait() noexcept { t_signals.in_kernel = t_signals.in_kernel + 1; }
  KernelWait(const KernelWait&) = delete;
  KernelWait& operator=(const KernelWait&) = delete;
  ~KernelWait() { t_signals.in_kernel = t_signals.in_kernel - 1; }
};

/// A handler ran on this thread since `mark`.
inline bool signal_pending(const SignalMark& mark) noexcept { return mark.pending(); }

/// What a sleeping thread waits on: an eventfd, lent for one sleep.
struct Waiter {
  Watcher watcher;  ///< notify is set to signal `event`
  EventFd event;
  Waiter* next = nullptr;
};

/// In the place of a sleep that would need an eventfd, where no descriptor is to be had (EMFILE):
/// who looks again each millisecond is late, but leaves the processor to others.
inline void nap_without_event() noexcept {
  constexpr timespec kNap{0, 1'000'000};
  ::syscall(SYS_nanosleep, &kNap, nullptr);
}

// ---- descriptors of ours that a program must not close
/// Moves `fd` to a high number, CLOEXEC, and remembers it. @return the new number, or `fd` if there
/// is no room above.
int protect_fd(int fd) noexcept;
void unprotect_fd(int fd) noexcept;
/// True for descriptors that are Vireo's: close(), dup2() onto and close_range() must spare them.
bool is_protected_fd(int fd) noexcept;

class Stack {
 public:
  struct Parts {
    Settings settings;
    DeviceOpener opener;
    bool want_helper = true;    ///< false: the test polls the engine itself
    bool want_mourner = false;  ///< true: a program that may be killed (and VIREO_MOURNER)
    bool want_filter = false;   ///< true: the host's packet filter has a say
    /// Some device can be opened once more by each ring: they share the packet memory.
    bool may_have_rings = false;
  };
  explicit Stack(Parts parts);
  ~Stack();  ///< tests only: every socket is closed
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  const Settings& settings() const { return settings_; }
  /// The parsed rules file; reads it at the first call.
  const Rules& rules();
  const KernelDefaults& defaults() const { return defaults_; }
  const std::string& program() const { return program_; }

  /// The first engine; makes it, the mirror, the counters and the helper at the first call.
  /// Refusals: kDisabled, kMemory. Order 3.
  Carried<Engine*> engine();
  /// As above if it exists already, else null.
  Engine* engine_if_any() const { return engine_ptr_.load(std::memory_order_acquire); }
  /// The one that serves a socket that is to be bound or connected, see rings.h. A socket has one
  /// for life: who has one does not ask. No engine's lock held.
  Carried<Engine*> engine_for(const Placing& p) {
    if (rings_.most() == 1) [[likely]]
      return engine();
    return place(p);
  }
  const Rings& rings() const { return rings_; }
  /// How many engines there are. In the order of their ids, which is that of their locks.
  unsigned engine_count() const { return engine_count_.load(std::memory_order_acquire); }
  template <class F>
  void for_each_engine(F&& fn) const {
    const unsigned n = engine_count();
    for (unsigned i = 0; i < n; ++i) fn(*engines_[i]);
  }
  net::Mirror* mirror() { return mirror_.get(); }
  /// The host's packet filter; null: it has no say. Constant once there is an engine.
  filter::Filter* filter() { return filter_.get(); }

  // ---- counters
  StatsLayout& stats();
  /// A free slot, or the spare one when all are taken. Give it back with put_stats(), which adds
  /// its counters to those of closed sockets; it stays readable until it is taken again.
  SocketStats& take_stats(int proto, int family, int fd);
  void put_stats(SocketStats& s);
  SocketStats& orphan_stats() { return spare_stats_; }
  /// Counts a decision, and warns once a process for those that an operator can cure.
  void count_decision(const Refusal& why);
  /// A lasting copy of a detail of some refusal.
  const char* keep(const std::string& detail);
  void count_carried();

  // ---- sleeping
  Result<Waiter*> take_waiter();
  void put_waiter(Waiter& w);
  SpinPlaces& spin_places() { return spin_places_; }

  /// A TCP connection or listener is carried from now on: who will tell the peers if we are killed?
  void watch_over_tcp() {
    if (mourner_) mourner_->start();
  }

  // ---- accepted connections
  /// A new descriptor that holds a number for a connection without a kernel socket: a dup of one
  /// unconnected socket of the family. Errors: EMFILE and those of socket(2).
  Result<int> place_number(int family, bool cloexec);

  Lock& placeholder_lock() { return place_lock_; }

  SpareShadows& spare_shadows() { return spare_shadows_; }

  OptionsTable& options_table() { return options_table_; }
  const SharedOptions& first_options() const { return first_options_; }  ///< a TCP socket's

  // ---- multicast
  void count_membership(int n) { members_.fetch_add(n, std::memory_order_relaxed); }
  /// A socket of this process is a member of some group: multicast must loop (a hint).
  bool has_members() const { return members_.load(std::memory_order_relaxed) > 0; }

  // ---- process life
  /// False in a vfork child and in children that no handler told us of: touch nothing, use the
  /// kernel.
  bool is_owner() const { return owner_.is_here(); }
  /// pthread_atfork's three (fork(2)): prepare takes all locks in order, parent lets go; child
  /// marks the engine void. After it, in the child: carried TCP connections are kVoid (ENOTCONN on
  /// use, closing them is silent), listeners, UDP and undecided sockets are the kernel's, and new
  /// sockets get a new engine.
  void fork_prepare();
  void fork_parent();
  void fork_child();
  /// exit(3): waits up to VIREO_EXIT_LINGER for data of closed connections, then resets what is
  /// left.
  void drain_at_exit();
  /// The second half of it, before an exec: what connections that are closed owe their peers.
  void drain_orphans();
  /// Another thread is in drain_at_exit(): this one, whose sockets went away under it, would be
  /// dead already if the kernel had carried them.
  bool ends_elsewhere() const noexcept;
  /// The exec behind write_stats_at_exit() has failed: they are to be written once more.
  void forget_stats_written() noexcept { stats_written_.store(0, std::memory_order_relaxed); }
  /// VMA_STATS_FILE: appends the counters, once a process. After drain_at_exit(). stats_file.cpp
  void write_stats_at_exit();

 private:
  struct Home {
    IpProto proto;
    uint16_t port;
    Instant at;
    Engine* engine;
  };
  Carried<Engine*> make_engine();
  Carried<std::unique_ptr<Engine>> create_engine(unsigned id);
  // rings.cpp
  Carried<Engine*> place(const Placing& p);
  Engine* home_of(const Placing& p) VIREO_REQUIRES(life_lock_);
  bool make_ring(const Placing& p, const Reach& wanted) VIREO_REQUIRES(life_lock_);
  void say_one_ring(const char* why) VIREO_REQUIRES(life_lock_);
  void map_stats() VIREO_REQUIRES(stats_lock_);
  // filtered.cpp
  /// The rules changed: who is carried against them? Thread: the helper.
  void judge_again();
  /// Whether it is to take fragments. Behind engine_count_, by which judge_again() finds it.
  void tell_of_filter(Engine& e);
  void say_unread();

  Settings settings_;
  KernelDefaults defaults_;
  DeviceOpener opener_;
  bool want_helper_;
  bool want_mourner_;
  bool want_filter_;
  bool may_have_rings_;
  std::string program_;
  Owner owner_;
  std::atomic<pid_t> ending_thread_{0};  ///< in drain_at_exit()

  Lock rules_lock_;  ///< leaf
  std::unique_ptr<Rules> rules_ VIREO_GUARDED_BY(rules_lock_);
  std::atomic<const Rules*> rules_ptr_{nullptr};
  Lock life_lock_;  ///< order 3: making engines, choosing one
  std::unique_ptr<net::Mirror> mirror_;
  std::unique_ptr<filter::Filter> filter_;
  std::atomic<bool> is_filter_unread_{false};  ///< and nobody has said so yet
  std::atomic<bool> said_unread_again_{false};
  std::set<std::string> kept_ VIREO_GUARDED_BY(rules_lock_);  ///< keep()
  std::unique_ptr<Mourner> mourner_;  ///< null: not wanted, or no memory for the will
  std::array<std::unique_ptr<Engine>, Rings::kMost> engines_;  ///< never freed: Files point at them
  std::atomic<unsigned> engine_count_{0};
  std::atomic<Engine*> engine_ptr_{nullptr};  ///< the first
  Rings rings_;
  std::vector<Home> homes_ VIREO_GUARDED_BY(life_lock_);  ///< ports that were asked for just now
  bool said_one_ring_ VIREO_GUARDED_BY(life_lock_) = false;
  tcp::IsnSecret secret_;  ///< of all engines, where there may be several
  std::optional<Refusal> engine_refusal_ VIREO_GUARDED_BY(life_lock_);
  Lock place_lock_;  ///< leaf
  UniqueFd placeholder4_, placeholder6_;
  SpareShadows spare_shadows_;
  OptionsTable options_table_;
  SharedOptions first_options_;

  Lock stats_lock_;    ///< leaf
  int stats_fd_ = -1;  ///< -1: the memfd could not be made, the counters are ours alone
  StatsLayout* stats_ VIREO_GUARDED_BY(stats_lock_) = nullptr;
  std::atomic<StatsLayout*> stats_ptr_{nullptr};
  SocketStats spare_stats_;
  uint32_t stats_hint_ VIREO_GUARDED_BY(stats_lock_) = 0;

  std::atomic<bool> warned_{false};
  std::atomic<pid_t> stats_written_{0};  ///< the process that wrote them last
  std::atomic<int> members_{0};

  SpinPlaces spin_places_;
  Lock waiter_lock_;  ///< leaf
  Waiter* free_waiters_ VIREO_GUARDED_BY(waiter_lock_) = nullptr;

  std::unique_ptr<Helper> helper_;
};

/// The program's stack; null before install_stack() and in programs where it was refused.
Stack* process_stack() noexcept;
void install_stack(Stack* s) noexcept;

}  // namespace vireo
