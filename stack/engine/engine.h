// The engine: one lock domain with its NIC queues, packet pool, flows and timers. The protocol code
// does no I/O; the engine connects it to frames, clock and lock. The work is done by the engine's
// parts (hub.h); this header is how to create, lock, poll, sleep on and help an engine.
//
// Owner: process. Every function, of the parts too, needs the engine's lock unless it says "any
// thread".
#pragma once

#include <memory>
#include <span>

#include "core/biased_lock.h"
#include "stack/engine/hub.h"

namespace vireo {

class Engine {
 public:
  /// Result of poll_for().
  struct PolledFor {
    uint32_t bytes = 0;  ///< that the caller has received; 0: whatever arrived took the usual way
    bool is_worked = false;  ///< as returned by poll()
  };

  /// Maps the arena only: a device is opened when the first flow needs it.
  static Result<std::unique_ptr<Engine>> create(EngineId id, const EngineConfig& config,
                                                DeviceOpener opener, net::Mirror& mirror,
                                                const EngineEvents& events, EngineStats& stats);
  /// The same on packet memory that processes share: DeviceGroup::take_arena().
  static std::unique_ptr<Engine> create_on(Arena arena, EngineId id, const EngineConfig& config,
                                           DeviceOpener opener, net::Mirror& mirror,
                                           const EngineEvents& events, EngineStats& stats);

  // ---- the lock
  BiasedLock& lock() VIREO_RETURN_CAPABILITY(lock_) { return lock_; }  ///< any thread
  /// Takes the lock and finishes the work that a receiving call deferred. A caller of take_lock()
  /// leaves that work pending and may do only what tolerates it. Any thread.
  void acquire() noexcept VIREO_ACQUIRE(lock_) {
    take_lock();
    finish_deferred();
  }
  /// Takes the lock only. Any thread.
  void take_lock() noexcept VIREO_ACQUIRE(lock_) VIREO_NO_THREAD_ANALYSIS {
    if (!lock_.enter()) [[unlikely]]
      take_lock_slowly();
  }
  bool try_acquire() noexcept VIREO_TRY_ACQUIRE(true, lock_) {
    if (!lock_.try_lock()) return false;
    finish_deferred();
    return true;
  }
  void unlock() noexcept VIREO_RELEASE(lock_) VIREO_NO_THREAD_ANALYSIS {
    if (!lock_.leave()) [[unlikely]]
      unlock_slowly();
  }
  /// Does the deferred work, if any.
  void finish_deferred() noexcept VIREO_REQUIRES(lock_) { hub_.deferred.finish_if_left(); }

  // ---- polling
  /// One burst from every queue, due timers, pending sends. @return true if a frame was handled.
  bool poll(Instant now) noexcept VIREO_REQUIRES(lock_) { return hub_.turn.poll(now); }
  /// poll() by a call that returns to the program with what arrived: Turn::poll_to_return().
  bool poll_to_return(Instant now, PollOf of = PollOf::kCall) noexcept VIREO_REQUIRES(lock_) {
    return hub_.turn.poll_to_return(now, of);
  }
  /// poll_to_return() by a blocking call that receives on `f` and has nothing to read. If the
  /// expected answer arrives, its payload goes straight to `to`, which must have an address. The
  /// rest of its processing is deferred, including received().
  PolledFor poll_for(TcpFlow& f, const iovec& to, Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The same for a datagram of the connected `u`, which has no pending error. Nothing is deferred.
  PolledFor poll_for(UdpFlow& u, const iovec& to, Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The same, inlined into the caller: fast_path/receive_awaited.h.
  template <class F>
  PolledFor poll_for_here(F& f, const iovec& to, Instant now, PollOf of = PollOf::kCall) noexcept
      VIREO_REQUIRES(lock_);
  /// Earliest time at which poll() has work without a new frame. Any thread.
  Instant next_deadline() const noexcept { return hub_.wakeups.deadline(); }
  /// Time of the program's last poll. Any thread.
  Instant last_poll() const noexcept { return hub_.wakeups.last_poll(); }

  // ---- sleeping
  /// Before a thread of the program sleeps: arms all queues and counts the sleeper. @return false:
  /// work arrived, nothing was counted: poll again. Call with the lock held, then release it and
  /// sleep on ports().wait_fds() and an eventfd of the caller's own. `nap_until`: set if frames
  /// come in bulk. No queue is armed then: sleep on the eventfd, and until that time.
  bool begin_sleep(Instant* nap_until = nullptr) noexcept;
  /// After the sleep, with or without the lock.
  void end_sleep() noexcept;

  // ---- the parts that others call. The rest of ports(), host(), doorbells() and wakeups() that
  // needs no lock says so.
  TcpFlows& tcp() noexcept VIREO_REQUIRES(lock_) { return hub_.tcp; }
  UdpFlows& udp() noexcept VIREO_REQUIRES(lock_) { return hub_.udp; }
  PassiveOpen& listeners() noexcept VIREO_REQUIRES(lock_) { return hub_.passive; }
  NextHops& next_hops() noexcept VIREO_REQUIRES(lock_) { return hub_.next_hops; }
  Ports& ports() noexcept { return hub_.ports; }
  OwnHost& host() noexcept { return hub_.host; }
  const OwnHost& host() const noexcept { return hub_.host; }
  Steering& steering() noexcept VIREO_REQUIRES(lock_) { return hub_.steering; }
  DoorbellPolicy& doorbells() noexcept { return hub_.doorbells; }
  Wakeups& wakeups() noexcept { return hub_.wakeups; }

  // ---- facts
  EngineId id() const noexcept { return hub_.id; }  ///< any thread
  PacketPool& pool() { return hub_.pool; }
  EngineStats& stats() { return hub_.stats; }
  Census census() const noexcept;
  /// Frames and calls for which the demux had to search the table.
  uint64_t demux_searches() const noexcept { return hub_.demux.searches(); }
  uint32_t live_flows() const noexcept { return hub_.wakeups.flows(); }  ///< any thread
  /// No socket of the program uses this engine; connections that it has closed may remain.
  bool is_unused() const noexcept;
  /// A listener or UDP socket has this local port, at any address.
  bool has_bound(IpProto proto, uint16_t port) noexcept;
  /// Calls fn(const DemuxKey&, Instant until) for every connection in TIME-WAIT.
  template <class F>
  void for_each_time_wait(F&& fn) {
    hub_.time_waits.for_each([&](TimeWaitEntry& e) { fn(std::as_const(e.key), e.until); });
  }

  // ---- work by the helper thread (stack/engine/helper.h)
  /// poll() on behalf of a program that makes no calls: does not count as the program's poll.
  bool poll_for_helper(Instant now) noexcept VIREO_REQUIRES(lock_) { return hub_.turn.run(now); }
  /// The helper's check each second while there are flows: finds lost devices, and devices that
  /// failed to wake a sleeper. @return true if a frame was handled.
  bool look_for_helper(Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The kernel's tables have changed.
  void heed_tables(Instant now) noexcept VIREO_REQUIRES(lock_) { hub_.turn.heed_tables(now); }
  /// With no flows nobody polls: lets the mirror free outdated snapshots.
  void forget_snapshot() noexcept { hub_.reader.quiesce(); }

 private:
  Engine(EngineId id, const EngineConfig& config, DeviceOpener opener, net::Mirror& mirror,
         const EngineEvents& events, EngineStats& stats, Arena arena)
      : hub_(id, config, std::move(opener), mirror, events, stats, std::move(arena)) {}

  void take_lock_slowly() noexcept;
  void unlock_slowly() noexcept;

  Hub hub_;
  // Shared with other threads, on its own cache line.
  alignas(64) BiasedLock lock_;
};

}  // namespace vireo
