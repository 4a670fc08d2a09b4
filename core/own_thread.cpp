#include "core/own_thread.h"

#include <signal.h>

#include <initializer_list>

namespace vireo {

int start_own_thread(pthread_t& thread, void* (*run)(void*), void* argument) noexcept {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited: there is no moment without it
  const int e = pthread_create(&thread, nullptr, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return e;
}

}  // namespace vireo
