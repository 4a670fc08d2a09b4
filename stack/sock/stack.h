// What all sockets of a process share: settings, rules, the engines, the mirror of the kernel's
// network state, counters, waiters. Created with the first socket, so that preloading `ls` costs
// nothing. A class, not globals, so that a test can have two hosts in one process; a program has
// one, installed by preload.
// Owner: process (or a test). Thread: any, unless said otherwise. Guards: each part has its own
// lock; life_lock_ guards what is made with the engines. Lock order: core/lock.h.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/kernel_defaults.h"
#include "config/settings.h"
#include "core/lock.h"
#include "dev/device_group.h"
#include "stack/engine/engine.h"
#include "stack/engine/helper.h"
#include "stack/net/netlink.h"
#include "stack/sock/counters.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/host_sockets.h"
#include "stack/sock/inherited.h"
#include "stack/sock/libc.h"
#include "stack/sock/mourner.h"
#include "stack/sock/options/shared.h"
#include "stack/sock/owner.h"
#include "stack/sock/packet_filter.h"
#include "stack/sock/placeholders.h"
#include "stack/sock/promotion.h"
#include "stack/sock/protected_fds.h"
#include "stack/sock/readiness.h"
#include "stack/sock/rings.h"
#include "stack/sock/rules_file.h"
#include "stack/sock/shadow_reserve.h"
#include "stack/sock/signal_mark.h"
#include "stack/sock/spin_places.h"
#include "stack/sock/waiters.h"

namespace vireo {

class Stack {
 public:
  struct Parts {
    Settings settings;
    DeviceOpener opener;
    bool want_helper = true;    ///< false: the test polls the engine itself
    bool want_mourner = false;  ///< true: a program that may be killed (and VIREO_MOURNER)
    bool want_filter = false;   ///< true: the host's packet filter is consulted
    /// Some device can be opened once per ring; each ring then gets a part of the packet memory.
    bool may_have_rings = false;
    GroupOpener group = nullptr;  ///< null: no other process shares our interfaces
  };
  explicit Stack(Parts parts);
  ~Stack();  ///< tests only, with every socket closed
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  const Settings& settings() const { return parts_.settings; }
  /// The parsed rules file; reads it at the first call.
  const Rules& rules() { return rules_.rules(parts_.settings); }
  bool add_rule(std::string_view line) { return rules_.add_first(parts_.settings, line); }
  const KernelDefaults& defaults() const { return defaults_; }
  const std::string& program() const { return program_; }

  /// The first engine. The first call creates it, the mirror, the counters and the helper.
  /// Refusals: kDisabled, kMemory. Order 3.
  Carried<Engine*> engine();
  /// The first engine if it exists, else null.
  Engine* engine_if_any() const { return engine_ptr_.load(std::memory_order_acquire); }
  /// The engine for a socket about to be bound or connected, see rings.h. A socket keeps its engine
  /// for life, so do not call this for one that has an engine. No engine's lock held.
  Carried<Engine*> engine_for(const Placing& p) {
    if (rings_.most() == 1) [[likely]]
      return engine();
    return place(p);
  }
  const Rings& rings() const { return rings_; }
  /// The number of engines. for_each_engine() visits them by id, which is their lock order.
  unsigned engine_count() const { return engine_count_.load(std::memory_order_acquire); }
  template <class F>
  void for_each_engine(F&& fn) const {
    const unsigned n = engine_count();
    for (unsigned i = 0; i < n; ++i) fn(*engines_[i]);
  }
  net::Mirror* mirror() { return mirror_.get(); }

  // ---- parts, each with a lock of its own
  Counters& counters() { return counters_; }
  StatsLayout& stats() { return counters_.all(); }
  Waiters& waiters() { return waiters_; }
  SpinPlaces& spin_places() { return spin_places_; }
  Placeholders& placeholders() { return placeholders_; }
  Promotion& promotion() { return promotion_; }
  Family& family() { return family_; }
  ShadowReserve& shadow_reserve() { return shadow_reserve_; }
  HostSockets& host_sockets() { return host_sockets_; }
  HostFilter& host_filter() { return host_filter_; }
  OptionsTable& options_table() { return options_table_; }
  const SharedOptions& first_options() const { return first_options_; }  ///< a new TCP socket's

  /// A TCP connection or listener is now carried: starts the mourner, in case we are killed.
  void watch_over_tcp() {
    if (mourner_) mourner_->start();
  }

  void wake_helper() {
    if (helper_) helper_->wake();
  }

  // ---- process life
  /// False in a vfork child, and in forked children for which no fork handler ran: they must not
  /// touch the Stack and use the kernel.
  bool is_owner() const { return owner_.is_here(); }
  /// The three handlers of pthread_atfork(3): prepare takes all locks in order, parent releases
  /// them, child marks the engine void. Afterwards, in the child: what the parent carries is kVoid
  /// until its first use, undecided sockets are the kernel's, and new sockets get a new engine.
  void fork_prepare();
  void fork_parent();
  void fork_child();
  /// exit(3): waits up to VIREO_EXIT_LINGER until the data of closed connections is sent, then
  /// resets the remaining ones.
  void drain_at_exit();
  /// The second half of it, also before an exec: sends what closed connections have queued.
  void drain_orphans();
  /// Another thread is in drain_at_exit(). The calling thread, whose sockets have been closed,
  /// would already be dead if the kernel had carried them.
  bool ends_elsewhere() const noexcept;
  /// VMA_STATS_FILE: appends the counters, once per process. After drain_at_exit(). stats_file.cpp
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
  // ---- the processes that share our interfaces
  struct OwnGroup {
    std::shared_ptr<DeviceGroup> group;  ///< null: none
    const char* refusal = nullptr;       ///< why, if one was wanted
    Instant read{};                      ///< when its counters were last set, by the helper
    Instant looked{};  ///< the helper's last look at the queues while the program slept
    DeviceGroup* operator->() const { return group.get(); }
  };
  void enter_group();
  /// Thread of these: the helper.
  void let_others_join();
  Duration tend_group(Instant now);
  // rings.cpp
  Carried<Engine*> place(const Placing& p);
  Engine* home_of(const Placing& p) VIREO_REQUIRES(life_lock_);
  bool make_ring(const Placing& p, const Reach& wanted) VIREO_REQUIRES(life_lock_);
  void say_one_ring(const char* why) VIREO_REQUIRES(life_lock_);
  // packet_filter.cpp
  /// The filter rules changed: checks carried sockets against them again. Thread: the helper.
  void judge_again();
  /// Whether it may accept fragments. After engine_count_, by which judge_again() finds it.
  void tell_of_filter(Engine& e);

  Parts parts_;  ///< constant
  KernelDefaults defaults_;
  std::string program_;
  Owner owner_;
  std::atomic<pid_t> ending_thread_{0};  ///< the thread in drain_at_exit()

  Lock life_lock_;  ///< order 3: making engines, choosing one
  // ---- made with the first engine, constant from then on
  std::unique_ptr<net::Mirror> mirror_;
  HostFilter host_filter_;
  std::unique_ptr<Mourner> mourner_;  ///< null: not wanted, or no memory for the last will
  OwnGroup group_;
  std::unique_ptr<Helper> helper_;
  tcp::IsnSecret secret_;  ///< shared by all engines, where there may be several
  // ---- written under life_lock_, read anywhere
  std::array<std::unique_ptr<Engine>, Rings::kMax> engines_;  ///< never freed: Files point to them
  std::atomic<unsigned> engine_count_{0};
  std::atomic<Engine*> engine_ptr_{nullptr};  ///< the first
  // ---- guarded by life_lock_
  Rings rings_;
  std::vector<Home> homes_ VIREO_GUARDED_BY(life_lock_);  ///< ports requested recently
  bool said_one_ring_ VIREO_GUARDED_BY(life_lock_) = false;
  std::optional<Refusal> engine_refusal_ VIREO_GUARDED_BY(life_lock_);

  // ---- parts with locks of their own
  RulesFile rules_;
  Counters counters_;
  Waiters waiters_;
  SpinPlaces spin_places_;
  Placeholders placeholders_;
  Promotion promotion_;
  Family family_;
  ShadowReserve shadow_reserve_;
  HostSockets host_sockets_;
  OptionsTable options_table_;
  SharedOptions first_options_;  ///< constant
};

/// The program's stack; null before install_stack().
Stack* process_stack() noexcept;
void install_stack(Stack* s) noexcept;

}  // namespace vireo
