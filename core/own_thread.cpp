#include "core/own_thread.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <initializer_list>
#include <new>

namespace vireo {
namespace {

std::atomic<int> g_running{0};
[[gnu::tls_model("initial-exec")]] thread_local constinit bool t_is_own = false;

struct Start {
  void* (*run)(void*);
  void* argument;
};

void* run_counted(void* p) {
  const Start start = *static_cast<Start*>(p);
  delete static_cast<Start*>(p);
  t_is_own = true;
  g_running.fetch_add(1, std::memory_order_relaxed);
  void* const result = start.run(start.argument);
  g_running.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

}  // namespace

bool is_own_thread() noexcept { return t_is_own; }
int own_threads() noexcept { return g_running.load(std::memory_order_relaxed); }
void forget_own_threads() noexcept { g_running.store(0, std::memory_order_relaxed); }

int start_own_thread(pthread_t& thread, void* (*run)(void*), void* argument) noexcept {
  auto* const start = new (std::nothrow) Start{run, argument};
  if (start == nullptr) return ENOMEM;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the thread from its start
  const int e = pthread_create(&thread, nullptr, run_counted, start);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (e != 0) delete start;
  return e;
}

}  // namespace vireo
