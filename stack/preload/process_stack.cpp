#include "stack/preload/process_stack.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <new>

#include "core/log.h"
#include "core/own_thread.h"
#include "dev/registry.h"
#include "stack/extra/completions.h"
#include "stack/extra/socket_rings.h"
#include "stack/preload/faults.h"
#include "stack/preload/real.h"
#include "stack/preload/signals.h"
#include "stack/sock/calls.h"
#include "stack/sock/holders.h"

extern char** environ;

namespace vireo::preload {
namespace {

constinit Lock g_lock;

void open_log(const Settings& s) {
  LogSink::level.store(static_cast<int>(s.log_level), std::memory_order_relaxed);
  if (s.log_file.empty()) return;
  const int fd = ::open(with_pid(s.log_file, ::getpid()).c_str(),
                        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0)
    LogSink::fd.store(protect_fd(fd), std::memory_order_relaxed);
  else
    log<LogLevel::kWarn>("VMA_LOG_FILE={}: cannot be opened ({}), logging to standard error",
                         s.log_file, std::strerror(errno));
}

Stack* make_stack() {
  // Set if the program has more privileges than its caller (ld.so(8), secure-execution mode).
  const bool is_secure = ::getauxval(AT_SECURE) != 0;
  ParsedSettings p = parse_settings(environ, is_secure ? Files::kNone : Files::kNamed);
  open_log(p.settings);
  for (const Diagnostic& d : p.diagnostics) {
    if (d.severity == Severity::kWarning)
      log<LogLevel::kWarn>("{}", d.text);
    else
      log<LogLevel::kDetails>("{}", d.text);
  }
  init_settings(p.settings);
  auto* stack = new (std::nothrow) Stack({.settings = settings(),
                                          .opener = device_opener(settings()),
                                          .want_mourner = true,
                                          .want_filter = true,
                                          .may_have_rings = may_have_rings(settings()),
                                          .group = group_opener(settings())});
  if (stack == nullptr) return nullptr;
  pthread_atfork([] { before_fork(); }, [] { after_fork_in_parent(); },
                 [] { after_fork_in_child(); });
  watch_faults();  // before any pointer of the program's is probed
  install_stack(stack);
  note_new_stack();
  return stack;
}

/// After main's own exit handlers: sends remaining data of closed connections.
[[gnu::destructor]] void at_exit() { leave_process(); }

}  // namespace

void before_fork() noexcept {
  go_in();
  extra::fork_prepare();
  process_stack()->fork_prepare();
}

void after_fork_in_parent() noexcept {
  process_stack()->fork_parent();
  extra::fork_parent();
  go_out();
}

void after_fork_in_child() noexcept {
  g_lock.reset_after_fork();
  reset_signals_after_fork();
  process_stack()->fork_child();
  extra::fork_child();
  extra::forget_completions();
  go_out();
}

Stack* own_stack() noexcept {
  Stack* const s = process_stack();
  return s != nullptr && !is_inside() && s->is_owner() ? s : nullptr;
}

void leave_process() noexcept {
  if (Stack* const s = own_stack(); s != nullptr) {
    Inside inside;
    s->drain_at_exit();
    s->write_stats_at_exit();
  }
}

void hand_over_to_child() noexcept {
  Stack* const s = own_stack();
  if (s == nullptr) return;
  Inside inside;
  sock::note_spawn(*s);
  if (s->engine_if_any() == nullptr) return;
  sock::hand_over_untouched(*s, sock::Untouched::kConnections);
}

void note_unknown_child() noexcept {
  // Vireo's own children have nothing of the program's.
  if (Stack* const s = process_stack(); s != nullptr && !is_inside() && !is_own_thread())
    sock::note_child(*s);
}

bool must_tell_fork(unsigned long clone_flags) noexcept {
  return (clone_flags & (CLONE_VM | CLONE_FILES | CLONE_NEWNET)) == 0 &&
         process_stack() != nullptr && !is_inside();
}

Stack* get_stack() noexcept {
  Stack* s = process_stack();
  if (s == nullptr) [[unlikely]] {
    Inside inside;
    (void)libc();
    const LockGuard guard(g_lock);
    s = process_stack();
    if (s == nullptr) s = make_stack();
  }
  return s != nullptr && s->is_owner() ? s : nullptr;
}

}  // namespace vireo::preload
