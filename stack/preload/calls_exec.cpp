// exec(3) and posix_spawn(3): another program may inherit Vireo's sockets. After a failed exec they
// stay on the kernel, and data of closed connections has been sent. Programs that libc starts by
// itself (system, popen) are not seen. Thread: any.
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "stack/preload/process_stack.h"
#include "stack/preload/real.h"
#include "stack/preload/signals.h"
#include "stack/sock/calls.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

extern char** environ;

namespace vireo::preload {

void before_exec() noexcept {
  if (Stack* const s = own_stack(); s != nullptr) {
    Inside inside;
    sock::give_to_next_program(*s);
    s->drain_orphans();
    s->write_stats_at_exit();
  }
}

int exec_failed() noexcept {
  if (Stack* const s = own_stack(); s != nullptr) s->counters().forget_file();
  return -1;
}

}  // namespace vireo::preload

namespace {

bool can_run(const char* path) noexcept { return ::access(path, X_OK) == 0; }

/// Whether execvp(3) would find `file`.
bool can_find(const char* file) noexcept {
  if (file == nullptr) return false;
  if (std::strchr(file, '/') != nullptr) return can_run(file);
  const char* const given = ::getenv("PATH");
  const std::string_view all = given != nullptr ? given : "/bin:/usr/bin";
  for (size_t from = 0; from <= all.size();) {
    const size_t to = std::min(all.find(':', from), all.size());
    const std::string_view folder = all.substr(from, to - from);
    char path[PATH_MAX];
    const int n = std::snprintf(path, sizeof path, "%.*s%s%s", static_cast<int>(folder.size()),
                                folder.data(), folder.empty() ? "" : "/", file);
    if (n > 0 && static_cast<size_t>(n) < sizeof path && can_run(path)) return true;
    from = to + 1;
  }
  return false;
}

/// A program may try several paths: those that do not exist change nothing.
template <class Exec>
int run(bool is_there, Exec&& exec) noexcept {
  if (is_there) before_exec();
  exec();
  return is_there ? exec_failed() : -1;
}

/// exec(list), with the arguments of execl(3) in execv(3)'s form; `v` is after the first, and in
/// the end after the terminating null pointer. Without an allocation: exec is async-signal-safe.
template <class Exec>
int with_list(const char* first, va_list& v, Exec&& exec) noexcept {
  size_t n = 1;
  va_list copy;
  va_copy(copy, v);
  for (const char* each = first; each != nullptr; ++n) each = va_arg(copy, char*);
  va_end(copy);
  auto** const list = static_cast<char**>(__builtin_alloca(n * sizeof(char*)));
  char** at = list;
  for (*at = const_cast<char*>(first); *at != nullptr;) *++at = va_arg(v, char*);
  return exec(list);
}

}  // namespace

extern "C" {

VIREO_EXPORT int execve(const char* path, char* const argv[], char* const env[]) noexcept {
  return run(can_run(path), [&] { real().execve(path, argv, env); });
}
VIREO_EXPORT int execv(const char* path, char* const argv[]) noexcept {
  return run(can_run(path), [&] { real().execve(path, argv, environ); });
}
VIREO_EXPORT int execvp(const char* file, char* const argv[]) noexcept {
  return run(can_find(file), [&] { real().execvp(file, argv); });
}
VIREO_EXPORT int execvpe(const char* file, char* const argv[], char* const env[]) noexcept {
  return run(can_find(file), [&] { real().execvpe(file, argv, env); });
}
VIREO_EXPORT int fexecve(int fd, char* const argv[], char* const env[]) noexcept {
  return run(true, [&] { real().fexecve(fd, argv, env); });
}
VIREO_EXPORT int execveat(int folder, const char* path, char* const argv[], char* const env[],
                          int flags) noexcept {
  return run(true, [&] { real().execveat(folder, path, argv, env, flags); });
}

VIREO_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  va_list v;
  va_start(v, first);
  const int r = with_list(first, v, [&](char** list) { return execv(path, list); });
  va_end(v);
  return r;
}
VIREO_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  va_list v;
  va_start(v, first);
  const int r = with_list(first, v, [&](char** list) { return execvp(file, list); });
  va_end(v);
  return r;
}
VIREO_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  va_list v;
  va_start(v, first);
  const int r =
      with_list(first, v, [&](char** list) { return execve(path, list, va_arg(v, char**)); });
  va_end(v);
  return r;
}

VIREO_EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* files,
                             const posix_spawnattr_t* attributes, char* const argv[],
                             char* const env[]) {
  hand_over_to_child();
  return real().posix_spawn(pid, path, files, attributes, argv, env);
}
VIREO_EXPORT int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* files,
                              const posix_spawnattr_t* attributes, char* const argv[],
                              char* const env[]) {
  hand_over_to_child();
  return real().posix_spawnp(pid, file, files, attributes, argv, env);
}

/// Its dup2(2) will be made inside libc.
VIREO_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t* actions, int from,
                                                  int to) noexcept {
  if (fd_table().find(from)) {
    Inside inside;
    sock::give_to_program(from);
  }
  return real().posix_spawn_file_actions_adddup2(actions, from, to);
}

}  // extern "C"
