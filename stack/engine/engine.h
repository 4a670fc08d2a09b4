// The engine: one lock domain with its NIC queues, packet pool, flows and timers. The protocol
// cores do no I/O; this is where frames, time and locks meet them. What it does lies in its parts
// (hub.h); here is how they are made, locked, polled, slept on and helped.
//
// Owner: process. Every function needs the engine's lock, unless it says "any thread"; so do those
// of the parts.
#pragma once

#include <memory>
#include <span>

#include "core/biased_lock.h"
#include "stack/engine/hub.h"

namespace vireo {

class Engine {
 public:
  /// What a poll_for() did.
  struct PolledFor {
    uint32_t bytes = 0;      ///< that the caller has; 0: what came, if anything, went the usual way
    bool is_worked = false;  ///< as poll() returns it
  };

  /// Maps the arena and starts nothing else: no device is opened before the first flow asks for it.
  static Result<std::unique_ptr<Engine>> create(EngineId id, const EngineConfig& config,
                                                DeviceOpener opener, net::Mirror& mirror,
                                                const EngineEvents& events, EngineStats& stats);

  // ---- the lock
  BiasedLock& lock() VIREO_RETURN_CAPABILITY(lock_) { return lock_; }  ///< any thread
  /// Takes the lock, and does the work that a receiving call deferred. Who takes it by take_lock()
  /// leaves that, and does nothing but what allows for it. Any thread.
  void acquire() noexcept VIREO_ACQUIRE(lock_) {
    take_lock();
    finish_deferred();
  }
  /// Takes the lock, and nothing else. Any thread.
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
  /// Does the deferred work, if there is any.
  void finish_deferred() noexcept VIREO_REQUIRES(lock_) { hub_.deferred.finish_if_left(); }

  // ---- polling
  /// One burst from every queue, due timers, pending sends. @return true if a frame was handled.
  bool poll(Instant now) noexcept VIREO_REQUIRES(lock_) { return hub_.turn.poll(now); }
  /// poll() of a call that returns to the program with what came: Turn::poll_to_return().
  bool poll_to_return(Instant now, PollOf of = PollOf::kCall) noexcept VIREO_REQUIRES(lock_) {
    return hub_.turn.poll_to_return(now, of);
  }
  /// poll_to_return() of a call that receives on `f` and has nothing to read: if what comes is the
  /// answer that is expected, it goes straight to `to`, which has an address. What else is to be
  /// done for it is deferred, that its bytes were received too. Of a call that blocks.
  PolledFor poll_for(TcpFlow& f, const iovec& to, Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The same of a datagram of the connected `u`, which has no error to tell. Nothing is deferred.
  PolledFor poll_for(UdpFlow& u, const iovec& to, Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The same as a part of the caller, by fast_path/receive_awaited.h.
  template <class F>
  PolledFor poll_for_here(F& f, const iovec& to, Instant now, PollOf of = PollOf::kCall) noexcept
      VIREO_REQUIRES(lock_);
  /// Earliest time at which poll() has something to do by itself. Any thread.
  Instant next_deadline() const noexcept { return hub_.wakeups.deadline(); }
  /// When the program polled last. Any thread.
  Instant last_poll() const noexcept { return hub_.wakeups.last_poll(); }

  // ---- sleeping
  /// Before a thread of the program sleeps: arms all queues and counts the sleeper. @return false:
  /// work arrived and nothing was counted: poll again. Call with the lock, then sleep without it on
  /// ports().wait_fds() and an eventfd of one's own.
  bool begin_sleep() noexcept;
  /// After it, with or without the lock.
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
  /// Frames and calls for whose flow the demux had to search.
  uint64_t demux_searches() const noexcept { return hub_.demux.searches(); }
  uint32_t live_flows() const noexcept { return hub_.wakeups.flows(); }  ///< any thread
  /// No socket of the program is here; connections that it has closed may be.
  bool is_unused() const noexcept;
  /// A listener or UDP socket has this local port, at whatever address.
  bool has_bound(IpProto proto, uint16_t port) noexcept;
  /// Calls fn(const DemuxKey&, Instant until) for every connection in TIME-WAIT.
  template <class F>
  void for_each_time_wait(F&& fn) {
    hub_.time_waits.for_each([&](TimeWaitEntry& e) { fn(std::as_const(e.key), e.until); });
  }

  // ---- progress by the helper thread (stack/engine/helper.h)
  /// poll() on behalf of a program that does not call in: does not count as the program's.
  bool poll_for_helper(Instant now) noexcept VIREO_REQUIRES(lock_) { return hub_.turn.run(now); }
  /// Its look each second while there are flows: are the devices still there, and did one forget to
  /// tell a sleeper of what came? @return true if a frame was handled.
  bool look_for_helper(Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The kernel's tables have changed.
  void heed_tables(Instant now) noexcept VIREO_REQUIRES(lock_) { hub_.turn.heed_tables(now); }
  /// While there are no flows nobody polls: lets the mirror free what is out of date.
  void forget_snapshot() noexcept { hub_.reader.quiesce(); }

 private:
  Engine(EngineId id, const EngineConfig& config, DeviceOpener opener, net::Mirror& mirror,
         const EngineEvents& events, EngineStats& stats, Arena arena)
      : hub_(id, config, std::move(opener), mirror, events, stats, std::move(arena)) {}

  void take_lock_slowly() noexcept;
  void unlock_slowly() noexcept;

  Hub hub_;
  // Shared with other threads, on a line of its own.
  alignas(64) BiasedLock lock_;
};

}  // namespace vireo
