// libc's own functions, found once by dlsym(RTLD_NEXT); those that the socket layer needs are in
// its table (sock/libc.h). Owner: process. Thread: any; the first call of any interposed name fills
// the table.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>
#include <cstdio>

#include "stack/sock/libc.h"

#define VIREO_EXPORT __attribute__((visibility("default")))

namespace vireo::preload {

/// For a process: its image, its identity, its threads' end.
struct RealProcess {
  void (*exit_now)(int) = nullptr;  ///< _exit
  void (*pthread_exit)(void*) = nullptr;
  void (*thrd_exit)(int) = nullptr;
  pid_t (*vfork)() = nullptr;
  pid_t (*fork_only)() = nullptr;  ///< _Fork, glibc 2.34
  int (*system)(const char*) = nullptr;
  FILE* (*popen)(const char*, const char*) = nullptr;
  int (*daemon)(int, int) = nullptr;
  int (*clone)(int (*)(void*), void*, int, void*, ...) = nullptr;
  int (*setns)(int, int) = nullptr;
  int (*unshare)(int) = nullptr;
  int (*setuid)(uid_t) = nullptr;
  int (*seteuid)(uid_t) = nullptr;
  int (*setreuid)(uid_t, uid_t) = nullptr;
  int (*setresuid)(uid_t, uid_t, uid_t) = nullptr;
  int (*setfsuid)(uid_t) = nullptr;
  decltype(&::execve) execve = nullptr;
  decltype(&::execvp) execvp = nullptr;
  decltype(&::execvpe) execvpe = nullptr;
  decltype(&::fexecve) fexecve = nullptr;
  int (*execveat)(int, const char*, char* const*, char* const*, int) = nullptr;
  decltype(&::posix_spawn) posix_spawn = nullptr;
  decltype(&::posix_spawnp) posix_spawnp = nullptr;
  decltype(&::posix_spawn_file_actions_adddup2) posix_spawn_file_actions_adddup2 = nullptr;
};

/// libc's functions beyond sock/libc.h.
struct Real : RealProcess {
  decltype(&::sigaction) sigaction = nullptr;
  decltype(&::pthread_sigmask) pthread_sigmask = nullptr;
  int (*close_range)(unsigned, unsigned, int) = nullptr;
  decltype(&::splice) splice = nullptr;
  decltype(&::preadv2) preadv2 = nullptr;
  decltype(&::pwritev2) pwritev2 = nullptr;
  int (*epoll_pwait2)(int, epoll_event*, int, const timespec*, const sigset_t*) = nullptr;
  decltype(&::pthread_setcanceltype) pthread_setcanceltype = nullptr;
  int (*fclose)(FILE*) = nullptr;
  decltype(&::fdopen) fdopen = nullptr;
  // liburing's, if the program uses it
  int (*io_uring_setup)(unsigned, void*) = nullptr;
  int (*io_uring_queue_init)(unsigned, void*, unsigned) = nullptr;
  int (*io_uring_queue_init_params)(unsigned, void*, void*) = nullptr;
  int (*io_uring_queue_init_mem)(unsigned, void*, void*, void*, size_t) = nullptr;
};

void load_real_functions() noexcept;
inline constinit bool g_loaded = false;

/// The socket layer's table, filled.
inline const Libc& libc() noexcept {
  if (!g_loaded) [[unlikely]]
    load_real_functions();
  return g_libc;
}
const Real& real() noexcept;

}  // namespace vireo::preload
