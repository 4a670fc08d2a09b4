// Starts the companion and shares the will with it.
#include "stack/sock/mourner.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "core/log.h"
#include "stack/sock/stack.h"

// Where the companion is installed, relative to the library's directory (CMakeLists.txt).
#ifndef VIREO_LIBEXEC
#define VIREO_LIBEXEC "../libexec"
#endif

namespace vireo {
namespace {

/// Descriptors of the companion, by their numbers there (tools/vireo-mourner/main.cpp).
enum : int { kAlive, kWill, kRaw4, kRaw6, kFds };

/// The state for the companion before its exec. It shares this process's memory until then, so it
/// may not allocate, lock or return.
struct Birth {
  const char* path = nullptr;
  char* const* argv = nullptr;
  int alive = -1;
  int will = -1;
  int error = 0;  ///< errno of the step that failed
  const char* where = "";
};

[[noreturn]] void give_up(Birth& b, const char* where) {
  b.error = errno;
  b.where = where;
  for (;;) ::syscall(SYS_exit_group, 127);
}

/// Moves `fd` above the numbers that are assigned below.
int out_of_the_way(long fd) {
  if (fd < 0) return -1;
  return static_cast<int>(::syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 2 * kFds));
}

void close_from(int first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  rlimit limit{};  // before Linux 5.9
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto end = static_cast<int>(std::min<rlim_t>(limit.rlim_max, 1U << 20));
  for (int fd = first; fd < end; ++fd) ::syscall(SYS_close, fd);
}

int become_companion(void* argument) {
  Birth& b = *static_cast<Birth*>(argument);
  int from[kFds];
  from[kAlive] = out_of_the_way(b.alive);
  from[kWill] = out_of_the_way(b.will);
  // Opened before exec(3), which may drop privileges; the network namespace is the program's.
  from[kRaw4] =
      out_of_the_way(::syscall(SYS_socket, AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  if (from[kRaw4] < 0) give_up(b, "raw socket, needs CAP_NET_RAW");
  from[kRaw6] =
      out_of_the_way(::syscall(SYS_socket, AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  for (int to = 0; to < kFds; ++to) {
    if (from[to] >= 0) {
      if (::syscall(SYS_dup3, from[to], to, 0) < 0) give_up(b, "descriptors");
    } else {
      ::syscall(SYS_close, to);  // no IPv6 here
    }
  }
  close_from(kFds);
  ::syscall(SYS_setsid);
  (void)!::syscall(SYS_chdir, "/");
  const sched_param ordinary{};
  ::syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &ordinary);
  // Empty environment: no LD_PRELOAD.
  char* const nothing[] = {nullptr};
  ::syscall(SYS_execve, b.path, b.argv, nothing);
  give_up(b, b.path);
}

constexpr size_t kStackBytes = 32 << 10;

/// As posix_spawn(3): no memory is copied, and this thread is suspended until the child's exec or
/// exit. @return its pid, or -1 and errno. `stack`: used by one child at a time.
int spawn(int (*run)(void*), std::byte (&stack)[kStackBytes], Birth& birth) {
  return ::clone(run, stack + kStackBytes, CLONE_VM | CLONE_VFORK, &birth);
}

/// After an exec, wait(2) sees any child; so the companion is made a grandchild whose parent ends.
int bear_companion(void* argument) {
  alignas(16) static std::byte stack[kStackBytes];
  Birth& b = *static_cast<Birth*>(argument);
  if (spawn(become_companion, stack, b) < 0) give_up(b, "clone");
  for (;;) ::syscall(SYS_exit_group, 0);
}

/// The path of this library. With a relative LD_PRELOAD the dynamic linker knows no more, and the
/// program may have changed its directory since: the kernel has the full path. Empty: unknown.
std::string library_path() {
  const auto here = reinterpret_cast<const void*>(&library_path);
  Dl_info self{};
  if (::dladdr(here, &self) == 0) return {};
  if (self.dli_fname[0] == '/') return self.dli_fname;
  const std::unique_ptr<FILE, decltype([](FILE* f) { std::fclose(f); })> maps(
      std::fopen("/proc/self/maps", "re"));
  char line[PATH_MAX + 128];
  while (maps != nullptr && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    int path_at = 0;
    // proc_pid_maps(5): range, rights, offset, device, inode, path
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &from, &to, &path_at) < 2)
      continue;
    const auto address = reinterpret_cast<uintptr_t>(here);
    if (address < from || address >= to) continue;
    const std::string_view path(line + path_at);
    return std::string(path.substr(0, path.find('\n')));
  }
  return {};
}

/// Beside the library, else where it is installed; empty: in neither place.
std::string find_companion() {
  const std::string library = library_path();
  if (library.empty()) return {};  // never from the program's current directory
  const std::string folder = library.substr(0, library.rfind('/') + 1);
  for (const char* there : {"", VIREO_LIBEXEC "/"}) {
    std::string path = folder + there + "vireo-mourner";
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

void say_there_is_none(const char* where, int error) {
  log<LogLevel::kWarn>(
      "no vireo-mourner ({}{}{}): if this program is killed, peers that only wait are not told",
      where, error != 0 ? ": " : "", error != 0 ? std::strerror(error) : "");
}

}  // namespace

std::unique_ptr<Mourner> Mourner::create() {
  const int fd = protect_fd(static_cast<int>(
      ::syscall(SYS_memfd_create, kLastWillMemfdName, static_cast<unsigned>(MFD_CLOEXEC))));
  UniqueFd will_fd(fd);
  void* at = MAP_FAILED;
  if (fd >= 0 && ::ftruncate(fd, sizeof(LastWill)) == 0)
    at = ::mmap(nullptr, sizeof(LastWill), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                0);
  if (at == MAP_FAILED) {
    say_there_is_none("memory of the last will", errno);
    return nullptr;
  }
  // A forked child does not own the connections.
  ::madvise(at, sizeof(LastWill), MADV_DONTFORK);
  ::madvise(at, sizeof(LastWill), MADV_DONTDUMP);
  // The memfd's zeroes are empty entries: none is constructed, so no page is touched.
  auto* const will = static_cast<LastWill*>(at);
  will->magic = kLastWillMagic;
  return std::unique_ptr<Mourner>(new (std::nothrow) Mourner(std::move(will_fd), will));
}

Mourner::~Mourner() { ::munmap(will_, sizeof(LastWill)); }

void Mourner::start() noexcept {
  if (is_started_.load(std::memory_order_relaxed)) return;
  if (is_started_.exchange(true, std::memory_order_relaxed)) return;
  const int saved = errno;
  const std::string path = find_companion();
  int ends[2];
  if (::getpid() == 1) {
    log<LogLevel::kInfo>("no vireo-mourner: the end of process 1 ends all others of its namespace");
  } else if (path.empty()) {
    say_there_is_none("neither beside the library nor in " VIREO_LIBEXEC, 0);
  } else if (::pipe2(ends, O_CLOEXEC) != 0) {
    say_there_is_none("pipe", errno);
  } else {
    UniqueFd read_end(ends[0]);
    alive_.reset(protect_fd(ends[1]));
    const std::string pid = std::to_string(::getpid());
    char name[] = "vireo-mourner";
    char* const argv[] = {name, const_cast<char*>(pid.c_str()), program_invocation_short_name,
                          nullptr};
    Birth birth{
        .path = path.c_str(), .argv = argv, .alive = read_end.get(), .will = will_fd_.get()};
    alignas(16) static std::byte stack[kStackBytes];
    // The companion keeps this mask over its exec: only SIGKILL ends it.
    const uint64_t all = ~uint64_t{0};
    uint64_t before = 0;
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    // A program that adopts orphans (PR_SET_CHILD_SUBREAPER) must not get the companion as a child.
    int takes_in = 0;
    if (::prctl(PR_GET_CHILD_SUBREAPER, &takes_in) != 0) takes_in = 0;
    if (takes_in != 0) ::prctl(PR_SET_CHILD_SUBREAPER, 0);
    const int child = spawn(bear_companion, stack, birth);
    const int error = child < 0 ? errno : birth.error;
    if (child > 0) ::syscall(SYS_wait4, child, nullptr, __WCLONE, nullptr);
    if (takes_in != 0) ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    Owner::after_vfork();
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
    if (error != 0) {
      alive_.reset();
      say_there_is_none(child < 0 ? "clone" : birth.where, error);
    }
  }
  errno = saved;
}

}  // namespace vireo
