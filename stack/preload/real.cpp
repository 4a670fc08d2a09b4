#include "stack/preload/real.h"

#include <dlfcn.h>

namespace vireo::preload {
namespace {

constinit Real g_real;

template <class F>
void load(F& f, const char* name) noexcept {
  f = reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// Two threads may run this at once: they store the same values.
void load_real_functions() noexcept {
#define X(name) load(g_libc.name, #name);
  VIREO_LIBC_CALLS(X)
#undef X
  load(g_real.sigaction, "sigaction");
  load(g_real.pthread_sigmask, "pthread_sigmask");
  load(g_real.fdopen, "fdopen");
  load(g_real.execve, "execve");
  load(g_real.execvp, "execvp");
  load(g_real.execvpe, "execvpe");
  load(g_real.fexecve, "fexecve");
  load(g_real.execveat, "execveat");
  load(g_real.posix_spawn, "posix_spawn");
  load(g_real.posix_spawnp, "posix_spawnp");
  load(g_real.posix_spawn_file_actions_adddup2, "posix_spawn_file_actions_adddup2");
  load(g_real.pthread_exit, "pthread_exit");
  load(g_real.thrd_exit, "thrd_exit");
  load(g_real.pthread_setcanceltype, "pthread_setcanceltype");
  load(g_real.close_range, "close_range");
  load(g_real.splice, "splice");
  load(g_real.preadv2, "preadv2");
  load(g_real.pwritev2, "pwritev2");
  load(g_real.epoll_pwait2, "epoll_pwait2");
  load(g_real.exit_now, "_exit");
  load(g_real.vfork, "vfork");
  load(g_real.fork_only, "_Fork");
  load(g_real.system, "system");
  load(g_real.popen, "popen");
  load(g_real.daemon, "daemon");
  load(g_real.clone, "clone");
  load(g_real.setns, "setns");
  load(g_real.unshare, "unshare");
  load(g_real.setuid, "setuid");
  load(g_real.seteuid, "seteuid");
  load(g_real.setreuid, "setreuid");
  load(g_real.setresuid, "setresuid");
  load(g_real.setfsuid, "setfsuid");
  load(g_real.fclose, "fclose");
  load(g_real.io_uring_setup, "io_uring_setup");
  load(g_real.io_uring_queue_init, "io_uring_queue_init");
  load(g_real.io_uring_queue_init_params, "io_uring_queue_init_params");
  load(g_real.io_uring_queue_init_mem, "io_uring_queue_init_mem");
  __atomic_store_n(&g_loaded, true, __ATOMIC_RELEASE);
}

const Real& real() noexcept {
  (void)libc();
  return g_real;
}

}  // namespace vireo::preload
