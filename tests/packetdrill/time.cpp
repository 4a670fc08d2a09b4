#include "tests/packetdrill/time.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "stack/sock/libc.h"

namespace vireo::packetdrill {
namespace {

Turns* g_turns = nullptr;
thread_local std::unique_lock<std::mutex>* t_turn = nullptr;
thread_local bool t_slept = false;  ///< in this call

bool is_ready(pollfd* fds, nfds_t n) { return kernel::poll_now(fds, n) > 0; }

/// All threads but the caller's wait for something (proc(5), stat: S).
bool others_wait() {
  DIR* const tasks = ::opendir("/proc/self/task");
  bool all = true;
  const std::string own = std::to_string(::gettid());
  while (const dirent* const d = ::readdir(tasks)) {
    if (d->d_name[0] == '.' || own == d->d_name) continue;
    std::ifstream in(std::string("/proc/self/task/") + d->d_name + "/stat");
    std::string line;
    std::getline(in, line);
    const size_t name_ends = line.rfind(')');
    all = all && (name_ends == std::string::npos || line[name_ends + 2] == 'S');
  }
  ::closedir(tasks);
  return all;
}

}  // namespace

VirtualClock& clock() {
  static VirtualClock c(Instant::from_ns(1'000'000'000'000));
  return c;
}

Turns::Turns() { g_turns = this; }
Turns::~Turns() { g_turns = nullptr; }

Turns::Turn::Turn(Turns& all) : all_(all) {
  t_turn = new std::unique_lock(all.mutex_);
  t_slept = false;
}
Turns::Turn::~Turn() {
  if (t_slept) {
    --all_.under_way_;
    ++all_.returned_;
    all_.moved_.notify_all();
  }
  delete t_turn;
}

int Turns::ppoll(pollfd* fds, nfds_t n, const timespec* timeout, const sigset_t*) {
  const Instant now = clock().now();
  return g_turns->sleep({.fds = fds,
                         .n = n,
                         .until = timeout == nullptr ? Instant::never()
                                                     : now + Duration::s(timeout->tv_sec) +
                                                           Duration::ns(timeout->tv_nsec)});
}

int Turns::sleep(Sleeper s) {
  const int ready = kernel::poll_now(s.fds, s.n);
  if (ready != 0 || clock().now() >= s.until) return ready;
  if (t_slept) --under_way_;
  const auto at = sleepers_.insert(sleepers_.end(), &s);
  moved_.notify_all();
  moved_.wait(*t_turn, [&] { return s.called; });
  sleepers_.erase(at);
  t_slept = true;
  return kernel::poll_now(s.fds, s.n);
}

Instant Turns::next_wake() const {
  Instant first = Instant::never();
  for (const Sleeper* s : sleepers_) first = std::min(first, s->until);
  return first;
}

bool Turns::let_go_on() {
  const int before = returned_;
  for (Sleeper* s : sleepers_) {
    if (s->called || (clock().now() < s->until && !is_ready(s->fds, s->n))) continue;
    s->called = true;
    ++under_way_;
  }
  const int own = t_slept ? 1 : 0;
  if (under_way_ == own) return false;
  moved_.notify_all();
  moved_.wait(*t_turn, [&] { return under_way_ == own; });
  return returned_ != before;
}

void Turns::let_others_settle() {
  constexpr int kTries = 20'000;  // a second: then it is the machine that is slow
  t_turn->unlock();
  for (int i = 0; i < kTries && !others_wait(); ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  t_turn->lock();
}

}  // namespace vireo::packetdrill

// NOLINTBEGIN: names that the linker makes
extern "C" {
int __real_clock_gettime(clockid_t, timespec*);
int __wrap_clock_gettime(clockid_t id, timespec* t) {
  if (id != CLOCK_MONOTONIC) return __real_clock_gettime(id, t);
  const int64_t ns = vireo::packetdrill::clock().now().ns();
  *t = {ns / 1'000'000'000, ns % 1'000'000'000};
  return 0;
}
/// Clock::calibrate(): left undone, the time is clock_gettime's.
void __wrap__ZN5vireo5Clock9calibrateEv() {}
}
// NOLINTEND
