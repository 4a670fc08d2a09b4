// fork(2) and exit(3). The engines, their devices and their memory stay the parent's; the child has
// the kernel sockets beneath, and makes an engine of its own when it opens sockets of its own.
//
// What an inherited socket does in the child (the parent's goes on as before):
//   accepted, but not read or written yet: the kernel's, shared with the parent, if the device can
//                              tell its frames from the listener's (hand_over.cpp): servers that
//                              fork for each connection
//   listener on which the parent has not called accept: the kernel's, too: servers that fork their
//                              workers
//   others that the parent carries (connection, listener, UDP): void until the child uses one;
//                              then the parent moves it to the kernel, where both go on
//                              (inherited.h). If the parent was killed: ENOTCONN for a connection,
//                              and poll(2) returns POLLHUP | POLLERR
//   undecided, kernel's        as always
// A child of clone(2) with its own memory is treated as one of fork (calls_process.cpp). In a child
// for which no handler ran (_Fork(3)) the descriptor table is empty: every socket is the kernel
// socket beneath, which for a carried connection answers ENOTCONN or EINVAL. Until it ends or calls
// exec, Vireo's devices live as long as it does.
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "core/log.h"
#include "core/own_fds.h"
#include "core/own_thread.h"
#include "core/sleep.h"
#include "stack/sock/async_io.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/epoll.h"
#include "stack/sock/extra_state.h"
#include "stack/sock/multiplex_wait.h"
#include "stack/sock/options/options.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/stack.h"
#include "stack/sock/thread_choice.h"
#include "stack/sock/udp_socket.h"
#include "stack/tcp/shared_config.h"

namespace vireo {

namespace {

// The table is the process's: of several stacks (tests) the first locks it and the last unlocks it.
int g_forking = 0;

}  // namespace

void Stack::fork_prepare() VIREO_NO_THREAD_ANALYSIS {
  if (is_owner() && engine_if_any() != nullptr) sock::hand_over_untouched(*this);
  family_.inherited.fork_prepare();
  life_lock_.lock();
  // The lock is held while the kernel copies the process.
  for_each_engine([is_ours = is_owner()](Engine& e) VIREO_NO_THREAD_ANALYSIS {
    e.acquire();
    if (is_ours) e.doorbells().release_held(Clock::now());
  });
  shadow_reserve_.fork_prepare();  // an engine's holder may touch a File
  if (g_forking++ == 0) {
    fd_table().lock().lock();
    tcp::SharedConfig::lock().lock();
    thread_choice::fork_prepare();
    inspection::fork_prepare();
    fd_table().show_to_child(true);
  }
  fd_table().for_each_file([](File& f) { f.touch(); });
  rules_.fork_prepare();
  host_filter_.fork_prepare();
  placeholders_.fork_prepare();
  promotion_.fork_prepare();
  host_sockets_.fork_prepare();
  family_.heirs.fork_prepare(*this);
  options_table_.lock().lock();
  counters_.fork_prepare();
  waiters_.fork_prepare();
}

void Stack::fork_parent() VIREO_NO_THREAD_ANALYSIS {
  waiters_.fork_parent();
  counters_.fork_parent();
  options_table_.lock().unlock();
  family_.heirs.fork_parent();
  host_sockets_.fork_parent();
  promotion_.fork_parent();
  placeholders_.fork_parent();
  host_filter_.fork_parent();
  rules_.fork_parent();
  if (--g_forking == 0) {
    fd_table().show_to_child(false);
    inspection::fork_parent();
    thread_choice::fork_parent();
    tcp::SharedConfig::lock().unlock();
    fd_table().lock().unlock();
  }
  for_each_engine([](Engine& e) VIREO_NO_THREAD_ANALYSIS { e.unlock(); });
  life_lock_.unlock();
  shadow_reserve_.fork_parent();
  family_.inherited.fork_parent();
}

void Stack::fork_child() VIREO_NO_THREAD_ANALYSIS {
  const int saved = errno;
  owner_.move_here();
  // Each drops what belongs to the parent.
  waiters_.fork_child();
  counters_.fork_child();
  options_table_.lock().reset_after_fork();
  spin_places_.reset_after_fork();
  family_.worker.fork_child();
  host_sockets_.fork_child();
  promotion_.fork_child();
  auto parents = family_.heirs.fork_child();
  family_.inherited.keep_fds(parents);
  placeholders_.fork_child();
  host_filter_.fork_child();
  rules_.fork_child();
  life_lock_.reset_after_fork();
  shadow_reserve_.fork_child();
  if (--g_forking == 0) {
    fd_table().show_to_child(false);
    tcp::SharedConfig::lock().reset_after_fork();
    thread_choice::fork_child();
    inspection::fork_child();
    fd_table().lock().reset_after_fork();
  }

  // Released without running their destructors: those would remove the parent's rules, and the
  // packet memory is not mapped here. This leaks a little memory.
  forget_own_threads();
  if (helper_) helper_->abandon();
  (void)helper_.release();
  for (auto& e : engines_) (void)e.release();
  (void)mirror_.release();
  (void)mourner_.release();
  // Leaked, as the engines that use it are.
  if (group_.group != nullptr) (void)new std::shared_ptr<DeviceGroup>(std::move(group_.group));
  group_.refusal = nullptr;
  engine_ptr_.store(nullptr, std::memory_order_release);
  engine_count_.store(0, std::memory_order_release);
  rings_.forget();
  homes_.clear();
  secret_ = {};
  engine_refusal_.reset();
  // The child's copies of the parent's descriptors: while open, they would keep its devices alive.
  LogSink::fd.store(2, std::memory_order_relaxed);  // the log file is among them
  close_own_fds();
  const bool has_parent = parents.has_value();
  family_.inherited.fork_child(std::move(parents));

  fd_table().for_each_file([&](File& f) {
    if (f.stack != this) return;
    f.control.reset_after_fork();
    f.ready.reset_after_fork();
    if (SendReports* const r = fd_table().reports_of(f); r != nullptr) r->reset_after_fork();
    if (f.is_tcp() && f.is_carried() && f.has_own_name()) leave_name(f);
    if (!f.is_epoll() && f.extra != nullptr) forget_extra(f);
    f.flow = nullptr;
    f.engine.store(nullptr, std::memory_order_relaxed);
    if (f.is_udp()) {
      f.udp->home = nullptr;
      f.udp->watched_port = 0;
    }
    if (f.is_tcp()) f.tcp.is_workers = false;
    f.holders.store(has_parent && f.holders.load(std::memory_order_relaxed) == Holders::kChild
                        ? Holders::kParent
                        : Holders::kUnknown,
                    std::memory_order_relaxed);
    f.stats = &counters_.unlisted();
    switch (f.mode.load(std::memory_order_relaxed)) {
      case Mode::kCarried:
      case Mode::kListening:
        f.mode.store(Mode::kVoid, std::memory_order_relaxed);
        break;
      case Mode::kUndecided:
      case Mode::kKernel:
      case Mode::kVoid:
        break;
    }
    // Calls that slept in the parent's threads do not exist here.
    f.refs.store(fd_table().count_names(f), std::memory_order_relaxed);
  });
  sock::reset_async_after_fork();
  // Last, because their items watch Files, which are all reset by now.
  fd_table().for_each_file([&](File& f) {
    if (f.stack == this && f.is_epoll()) f.epoll->reset_after_fork();
  });
  errno = saved;
}

bool Stack::ends_elsewhere() const noexcept {
  const pid_t ending = ending_thread_.load(std::memory_order_acquire);
  return ending != 0 && ending != ::gettid();
}

namespace {

/// Other processes go on with listeners that this one joined.
void leave_joined(const Stack& stack, sock::EngineHold& hold) {
  fd_table().for_each_file([&](File& f) {
    if (f.stack != &stack || f.mode.load(std::memory_order_acquire) != Mode::kListening) return;
    Engine* const e = f.engine.load(std::memory_order_acquire);
    if (e == nullptr) return;
    hold.take(e);
    if (f.flow == nullptr || f.flow->kind != FlowKind::kListener || !f.listener().options.joins)
      return;
    e->listeners().close(f.listener(), Clock::now());
    f.flow = nullptr;
    f.mode.store(Mode::kVoid, std::memory_order_release);
  });
}

}  // namespace

void Stack::drain_at_exit() {
  if (engine_if_any() == nullptr || !is_owner()) return;
  family_.heirs.leave_all(*this);
  // Pairs with the acquire above: a thread that finds its socket closed knows why.
  ending_thread_.store(::gettid(), std::memory_order_release);
  // Closes connections that are still open, as the kernel would. Their Files stay, so that a thread
  // that uses one calls Vireo and not the kernel socket beneath.
  {
    sock::EngineHold hold;
    leave_joined(*this, hold);
    fd_table().for_each_file([&](File& f) {
      if (f.stack != this || !f.is_carried() || !f.is_tcp()) return;
      Engine* const e = f.engine.load(std::memory_order_acquire);
      if (e == nullptr) return;
      hold.take(e);
      if (!f.is_carried() || f.flow == nullptr) return;
      const bool reset =
          f.tcp.options->socket.linger_on != 0 && f.tcp.options->socket.linger_s == 0;
      // If another thread holds the control lock, it reads the options: no address is then saved.
      if (f.control.try_lock()) {
        leave_name(f);
        f.control.unlock();
      }
      e->tcp().close(f.tcp_flow(), UniqueFd(), reset, Clock::now());
      f.flow = nullptr;
      f.mode.store(Mode::kVoid, std::memory_order_release);
      f.ready.notify(kReadyIn | kReadyOut | EPOLLHUP);
    });
  }
  drain_orphans();
}

void Stack::drain_orphans() {
  if (engine_if_any() == nullptr || !is_owner()) return;
  // Unsent data is worth the whole VIREO_EXIT_LINGER while peers accept some of it. The peers'
  // FINs, data that they had sent before, and their answers to retransmissions are worth a moment:
  // they should reach the engine and not the kernel, which would reset them. The slower the peers
  // were, the longer.
  constexpr Duration kPeerCloses = Duration::ms(50);
  constexpr Duration kQuiet = Duration::ms(1);
  constexpr uint64_t kMinTaken = 536;  // least segment that a reading peer has room for, RFC 9293
  constexpr int kMaxTimes = 12;        // of VIREO_EXIT_LINGER, whatever peers accept
  constexpr timespec kNap{0, 100'000};
  const Duration patience = parts_.settings.exit_linger;
  const Instant start = Clock::now();
  Instant last_frame = start;
  Instant last_taken = start;
  Instant settled = start;
  uint64_t least_owed = UINT64_MAX - kMinTaken;
  for (;;) {
    Instant now;
    bool has_orphans = false;
    bool is_leaving = false;
    uint64_t owed = 0;
    for_each_engine([&](Engine& e) {
      const EngineGuard guard(e);
      now = Clock::now();
      if (e.poll(now)) last_frame = now;
      has_orphans |= e.tcp().has_orphans();
      owed += e.tcp().orphans_owe();
      is_leaving |= e.listeners().is_leaving();
    });
    // One byte acknowledged by a zero-window probe does not show that the peer reads.
    if (owed + kMinTaken <= least_owed || owed == 0) {
      last_taken = now;
      least_owed = owed;
    }
    if (owed != 0) {
      settled = now;
      if (now - last_taken >= patience || now - start >= patience * kMaxTimes) break;
    } else {
      const Duration quiet = has_orphans || is_leaving
                                 ? kPeerCloses
                                 : std::clamp(settled - start, kQuiet, kPeerCloses);
      if (now - std::max(settled, last_frame) >= std::min(quiet, patience) ||
          now - settled >= std::min(kPeerCloses, patience))
        break;
    }
    // It may take a while, and the peer may need this processor.
    if (now - last_frame > kQuiet)
      ::syscall(SYS_nanosleep, &kNap, nullptr);
    else
      cpu_relax();
  }
  for_each_engine([](Engine& e) {
    const EngineGuard guard(e);
    e.tcp().settle_will();
  });
  if (group_.group != nullptr) group_->retire();
}

}  // namespace vireo
