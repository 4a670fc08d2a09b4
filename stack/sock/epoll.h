// An epoll of the program: epoll(7) over Vireo's sockets and the kernel's descriptors.
//
// The events of an item come from three places:
//   ready list   Vireo's side of carried sockets, listeners and nested epolls: a Watcher pushes the
//                item on an event, the level is read when it is taken off
//   hybrid       a kernel epoll of Vireo's own, data = the item: the kernel's side of sockets that
//                have two sides (UDP, listeners, undecided ones, nested epolls)
//   raw          the program's own epoll descriptor, data = the program's: descriptors that are
//                the kernel's alone (pipes, timers, TCP over loopback). The kernel does it all:
//                closing, dup, EPOLLONESHOT, errors; the wait too, if all items are there
// A nested epoll is also in raw, with no events, so that the kernel checks loops and depth.
//
// Owner: its File, freed with it. Guards: the File's control lock (Linux: ep->mtx) for the items;
// ready_lock_, innermost, for what notifications write (Linux: ep->lock). Order: outer epoll's
// control lock, nested one's, engine's, leaves.
// Source: epoll(7); Linux fs/eventpoll.c for what the manual leaves open.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/biased_lock.h"
#include "core/fd.h"
#include "core/result.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/file.h"
#include "stack/sock/multiplex_wait.h"

namespace vireo {

class Epoll {
 public:
  /// A thread that sleeps in epoll_wait.
  struct Sleeper {
    boost::intrusive::list_member_hook<> hook;
    EventFd* event = nullptr;
  };

  explicit Epoll(File& self) noexcept : self_(self) {}
  Epoll(const Epoll&) = delete;
  Epoll& operator=(const Epoll&) = delete;
  ~Epoll();

  // ---- with the File's control lock held. `fd`: the epoll's descriptor
  Result<void> ctl(int epoll_fd, int op, const Handle& target, epoll_event event) noexcept;
  /// epoll_ctl(2) on a descriptor that is the kernel's alone.
  Result<void> ctl_raw(int epoll_fd, int op, int fd, const epoll_event* event) noexcept;
  /// Takes ready events.
  Result<int> harvest(int epoll_fd, std::span<epoll_event> out, sock::Look how,
                      Instant now) noexcept;
  /// Whether an event is ready (an epoll is a descriptor too); takes none.
  bool is_ready(int epoll_fd) noexcept;
  /// Polls `e` once, as poll_engine_to_return(). Takes ready events under the same lock if they are
  /// few and the kernel need not be checked. The File is pinned.
  bool poll_and_take(Engine& e, std::span<epoll_event> out, Instant now, size_t& taken) noexcept;
  /// Adds the engines of all items, nested ones too.
  void collect_engines(sock::EngineSet& set) noexcept;
  /// The hybrid descriptor, made if missing. Errors: those of epoll_create1(2).
  Result<int> hybrid_fd() noexcept;
  int hybrid_fd_if_any() const noexcept { return hybrid_count_ != 0 ? hybrid_.get() : -1; }

  /// A descriptor number of the File, `h.fd` if that still is one; -1: none.
  static int name_of(const Handle& h) noexcept;

  // ---- any thread that keeps the File alive
  /// A hint: harvest() would find items to check.
  bool pending() const noexcept { return wants(kReady | kDirty); }
  /// @return false: something is pending, do not sleep.
  bool arm(Sleeper& s, EventFd& event) noexcept;
  void disarm(Sleeper& s) noexcept;
  // ---- epoll_alone.cpp: a wait that the kernel's epoll does by itself
  /// arm() for a wait in `epoll_fd` itself, which other threads' changes then end. Control lock
  /// held. @return false: some item is not raw, something is pending, another thread waits so, or
  /// no descriptor is free.
  bool arm_alone(int epoll_fd) noexcept;
  void disarm_alone() noexcept;
  /// Takes the event of Vireo's own out of what `epoll_fd` has reported. @return how many are left.
  size_t without_wake(std::span<epoll_event> events) const noexcept;
  /// The caller leaves without checking, or without taking all: wakes the next sleeper.
  void pass_on() noexcept;

  /// Some item was a listener of Vireo's. Any thread.
  bool listens() const noexcept { return listens_.load(std::memory_order_relaxed); }

  /// Before a wait, in the child of a fork: what the parent carries becomes the kernel's. Control
  /// lock held.
  void use_inherited() noexcept {
    if (has_void_) [[unlikely]]
      use_void_items();
  }

  /// In the child of a fork: drops the hybrid, engines and sleepers. One thread.
  void reset_after_fork() noexcept;

 private:
  using Hook = boost::intrusive::list_member_hook<>;
  /// Which kernel epoll has the item.
  enum class Place : uint8_t { kNowhere, kRaw, kHybrid };

  struct Item {
    Watcher watcher;  ///< the first member: notify() finds the item by it
    Epoll* owner = nullptr;
    // ---- guarded by the control lock
    Handle target;  ///< fd: the number passed to epoll_ctl
    epoll_event event{};
    uint32_t index = 0;
    uint32_t generation = 0;   ///< of the slot: identifies stale hybrid events
    uint32_t kernel_bits = 0;  ///< events from hybrid, not yet returned to the program
    uint32_t kernel_look = 0;  ///< the look that found them: a level is valid for one look only
    int kernel_fd = -1;        ///< the number registered in hybrid
    int nested_fd = -1;        ///< a nested epoll's own hybrid, also registered
    Engine* engine = nullptr;  ///< counted in engines_
    Place place = Place::kNowhere;
    bool in_use = false;
    bool disarmed = false;  ///< EPOLLONESHOT has fired
    bool is_epoll = false;
    // ---- guarded by ready_lock_
    bool dirty = false;   ///< in dirty_
    bool closed = false;  ///< the File is closed
    bool muted = false;   ///< disarmed: its events wake no sleeper
    Hook ready_hook;
    Hook dirty_hook;

    bool has(uint32_t flag) const noexcept { return (event.events & flag) != 0; }
  };
  template <class T, Hook T::* H>
  using List = boost::intrusive::list<T, boost::intrusive::member_hook<T, Hook, H>,
                                      boost::intrusive::constant_time_size<false>>;

  static void notify(Watcher& w, ReadyBits happened) noexcept;
  static uint64_t key_of(const Handle& h) noexcept {
    return static_cast<uint64_t>(fd_table().index_of(*h.file)) << 32 | static_cast<uint32_t>(h.fd);
  }

  // epoll_items.cpp
  void use_void_items() noexcept;
  Item* find(const Handle& target) noexcept;
  Result<void> add(int epoll_fd, const Handle& target, const epoll_event& event) noexcept;
  Result<void> modify(int epoll_fd, Item& i, const epoll_event& event) noexcept;
  void erase(int epoll_fd, Item& i) noexcept;
  Item& new_item() noexcept;
  void watch(Item& i) noexcept;
  void queue_if_ready(Item& i) noexcept;
  void count_engine(Item& i, Engine* e) noexcept;
  void wake_all() noexcept;

  // epoll_kernel.cpp
  Place wanted_place(const Item& i) const noexcept;
  uint32_t hybrid_events(const Item& i) const noexcept;
  Result<void> settle(int epoll_fd, Item& i, bool rearm) noexcept;
  void leave_kernel(int epoll_fd, Item& i) noexcept;
  void leave_raw(Item& i) noexcept;
  Result<void> enter_hybrid(Item& i) noexcept;
  Result<void> register_in(int kernel_epoll, int fd, Item& i) noexcept;
  bool is_kernels_turn(sock::Look how, Instant now) noexcept;
  void look_at_hybrid() noexcept;
  void rebuild_hybrid() noexcept;

  // epoll.cpp
  void settle_dirty(int epoll_fd) noexcept;
  uint32_t evaluate(Item& i, sock::EngineHold& hold, bool& ours) noexcept;
  Engine* only_engine() const noexcept { return engine_slots_ == 1 ? engines_[0].engine : nullptr; }
  std::optional<size_t> take_few(const Engine& e, std::span<epoll_event> out) noexcept;
  size_t take_ready(std::span<epoll_event> out) noexcept;
  Result<size_t> take_raw(int epoll_fd, std::span<epoll_event> out) noexcept;
  void push(Item& i, bool front = false) noexcept VIREO_REQUIRES(ready_lock_);
  void queue(Item& i) noexcept;
  void wake_one() noexcept VIREO_REQUIRES(ready_lock_);
  void set_attention() noexcept VIREO_REQUIRES(ready_lock_);

  File& self_;
  std::deque<Item> items_;  ///< addresses are stable
  std::vector<uint32_t> free_items_;
  std::unordered_map<uint64_t, Item*> by_key_;
  struct EngineCount {
    Engine* engine = nullptr;
    uint32_t items = 0;
  };
  EngineCount engines_[sock::EngineSet::kMax];
  uint32_t engine_slots_ = 0;  ///< entries ever used
  UniqueFd hybrid_;
  uint32_t hybrid_count_ = 0;
  bool has_void_ = false;  ///< some items' sockets are perhaps void
  std::atomic<bool> listens_{false};
  int number_ = -1;         ///< by which an item last came to raw
  uint32_t raw_count_ = 0;  ///< an upper bound: the kernel does not report closed ones
  uint32_t nested_count_ = 0;
  uint32_t look_ = 0;       ///< number of looks at the kernel so far
  uint32_t skipped_ = 0;    ///< calls that found an event and did not check the kernel
  Instant next_look_;       ///< for calls that found an event
  bool rebuild_ = false;    ///< hybrid reports an item that no longer exists
  bool raw_first_ = false;  ///< alternates when both sides have events

  Waiter* alone_ = nullptr;  ///< its eventfd is in the program's epoll, with alone_data()
  Sleeper alone_sleeper_;    ///< not on a stack: a handler may leave the wait by longjmp
  std::atomic<bool> is_alone_taken_{false};  ///< a thread waits with it
  /// What no program has as its data but by chance.
  uint64_t alone_data() const noexcept { return reinterpret_cast<uint64_t>(&alone_); }

  BiasedLock ready_lock_;
  List<Item, &Item::ready_hook> ready_ VIREO_GUARDED_BY(ready_lock_);
  uint32_t ready_count_ VIREO_GUARDED_BY(ready_lock_) = 0;
  List<Item, &Item::dirty_hook> dirty_ VIREO_GUARDED_BY(ready_lock_);
  List<Sleeper, &Sleeper::hook> sleepers_ VIREO_GUARDED_BY(ready_lock_);
  /// Which lists are not empty; written under ready_lock_, so no update is lost.
  enum Attention : uint8_t { kReady = 1, kDirty = 2, kSleeper = 4 };
  bool wants(unsigned any) const noexcept {
    return (attention_.load(std::memory_order_acquire) & any) != 0;
  }
  std::atomic<uint8_t> attention_{0};
};

/// Frees the Epoll of a File whose last reference is gone. No lock held.
void free_epoll(File& f) noexcept;

}  // namespace vireo
