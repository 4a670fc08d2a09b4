// The watchers of sockets with O_ASYNC, and the signals that they send.
#include "stack/sock/async_io.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <vector>

#include "stack/sock/calls.h"
#include "stack/sock/options/values.h"

namespace vireo::sock {
namespace {

struct AsyncWatcher {
  Watcher watcher;  ///< the first member: notify() casts it to AsyncWatcher
  File* file = nullptr;
  int fd = -1;  ///< the descriptor of the request
  /// Of a TCP socket, the F_SETOWN recipient. A copy, because notify() may run without the locks
  /// that guard the socket's options. Guarded by g_lock.
  f_owner_ex owner{};
};

/// Few sockets have one. This lock may be taken with a ReadySource's lock held, never the other way
/// round.
Lock g_lock;
std::vector<std::unique_ptr<AsyncWatcher>> g_all VIREO_GUARDED_BY(g_lock);

std::unique_ptr<AsyncWatcher> take_out(const File& f) {
  const LockGuard guard(g_lock);
  const auto at =
      std::find_if(g_all.begin(), g_all.end(), [&](const auto& w) { return w->file == &f; });
  if (at == g_all.end()) return {};
  auto taken = std::move(*at);
  g_all.erase(at);
  return taken;
}

/// The F_SETOWN recipient.
f_owner_ex owner_of(const AsyncWatcher& w) {
  if (w.file->is_tcp()) {
    const LockGuard guard(g_lock);
    return w.owner;
  }
  f_owner_ex o{};
  (void)libc().fcntl(w.fd, F_GETOWN_EX, &o);
  return o;
}

void send_signal(const AsyncWatcher& w, ReadyBits happened) noexcept {
  const f_owner_ex to = owner_of(w);
  if (to.pid == 0) return;
  const int own = libc().fcntl(w.fd, F_GETSIG);
  if (own > 0 && to.type != F_OWNER_PGRP) {
    siginfo_t info{};
    info.si_signo = own;
    info.si_fd = w.fd;
    info.si_band = static_cast<long>(happened & 0xffff);
    info.si_code = (happened & EPOLLIN) != 0    ? POLL_IN
                   : (happened & EPOLLOUT) != 0 ? POLL_OUT
                                                : POLL_HUP;
    const long done = to.type == F_OWNER_TID
                          ? ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), to.pid, own, &info)
                          : ::syscall(SYS_rt_sigqueueinfo, to.pid, own, &info);
    if (done == 0) return;
  }
  if (to.type == F_OWNER_TID)
    ::syscall(SYS_tgkill, ::getpid(), to.pid, SIGIO);
  else
    ::kill(to.type == F_OWNER_PGRP ? -to.pid : to.pid, SIGIO);
}

void notify(Watcher& watcher, ReadyBits happened) noexcept {
  auto& w = reinterpret_cast<AsyncWatcher&>(watcher);
  if (happened == kFileClosed) {
    (void)take_out(*w.file);  // frees the watcher
    return;
  }
  if ((happened & 0xffff) != 0) send_signal(w, happened);
}

}  // namespace

f_owner_ex owner_in(const SignalOwner& o) {
  return {o.is_thread ? F_OWNER_TID : o.pid < 0 ? F_OWNER_PGRP : F_OWNER_PID, std::abs(o.pid)};
}

void set_async(Handle h, bool on) noexcept {
  File& f = *h.file;
  if (on == is_async(f)) return;
  if (!on) {
    const auto w = take_out(f);
    if (w) f.ready.remove(w->watcher);
    return;
  }
  auto made = std::make_unique<AsyncWatcher>();
  AsyncWatcher& w = *made;
  w.file = &f;
  w.fd = h.fd;
  w.watcher.notify = notify;
  if (f.is_tcp()) w.owner = owner_in(f.tcp.options->owner);
  {
    const LockGuard guard(g_lock);
    g_all.push_back(std::move(made));
  }
  f.ready.add(w.watcher);
}

void set_async_owner(const File& f, const SignalOwner& o) noexcept {
  const LockGuard guard(g_lock);
  for (const auto& w : g_all)
    if (w->file == &f) w->owner = owner_in(o);
}

bool is_async(const File& f) noexcept {
  const LockGuard guard(g_lock);
  return std::any_of(g_all.begin(), g_all.end(), [&](const auto& w) { return w->file == &f; });
}

void reset_async_after_fork() noexcept VIREO_NO_THREAD_ANALYSIS {
  g_lock.reset_after_fork();
  for (auto& w : g_all) (void)w.release();  // leaked: perhaps a thread was changing the list
  g_all.clear();
}

}  // namespace vireo::sock
