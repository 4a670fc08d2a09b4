#include "dev/softnic/pump.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "dev/softnic/kernel_calls.h"
#include "dev/softnic/nic.h"

namespace vireo::softnic {
namespace {

std::atomic<bool> g_by_hand{false}, g_each_doorbell{true}, g_refused{false};
std::once_flag g_started;

void sleep_ns(long ns) {
  const timespec t{0, ns};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &t, nullptr);
}

/// Keeps this thread off the cores on which the process' own threads ring, as long as any is left:
/// there it would take the time of a program that waits for what it brings. With two cores it goes
/// where the sender is, who wakes it by his doorbell and so pays for the way of his frame.
class Whereabouts {
 public:
  Whereabouts() { CPU_ZERO(&away_); }
  void keep_off(int core) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(static_cast<size_t>(core), &wish_);
  }
  /// After all keep_off() of a turn.
  void settle() {
    if (!CPU_EQUAL(&wish_, &away_)) {
      cpu_set_t to;
      for (size_t i = 0; i < CPU_SETSIZE; ++i)
        CPU_ISSET(i, &wish_) ? CPU_CLR(i, &to) : CPU_SET(i, &to);
      // Refused if no core is left that this process may use.
      if (sched_setaffinity(0, sizeof to, &to) != 0) {
        std::memset(&to, 0xff, sizeof to);
        (void)sched_setaffinity(0, sizeof to, &to);
      }
      away_ = wish_;
    }
    CPU_ZERO(&wish_);
  }

 private:
  cpu_set_t wish_{}, away_;
};

/// Sleeps until there is something to bring. Programs that poll their rings take whole processors,
/// and a device that waited for their slices to end would be none: it goes before them where it
/// may, and is away most of the time.
void run() {
  constexpr int kLookMs = 1;
  sigset_t all;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, nullptr);  // signals are the program's
  prctl(PR_SET_TIMERSLACK, 1);                        // else the kernel makes 60 us of a nap
  const sched_param first{1};
  (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);  // needs CAP_SYS_NICE
  std::vector<pollfd> fds;
  Whereabouts whereabouts;
  for (bool told = false;;) {
    long next = Port::kUntilTold;
    fds.clear();
    if (!g_by_hand.load(std::memory_order_relaxed)) {
      for (Nic* n : every_device()) {
        const std::lock_guard hold(n->port.lock);
        if (!n->port.is_direct()) continue;
        const long wish = n->port.tend(told);
        whereabouts.keep_off(n->port.rung_on());
        if (wish != Port::kUntilTold && (next == Port::kUntilTold || wish < next)) next = wish;
        for (const int fd : n->port.wait_fds()) fds.push_back({fd, POLLIN, 0});
      }
    }
    whereabouts.settle();
    told = next == Port::kUntilTold && kernel::wait_readable(fds, kLookMs);
    if (next > 0) sleep_ns(next);
  }
}

}  // namespace

void drive(bool by_hand, bool each_doorbell) {
  g_by_hand.store(by_hand, std::memory_order_relaxed);
  g_each_doorbell.store(each_doorbell, std::memory_order_relaxed);
}

void refuse_rings(bool refused) { g_refused.store(refused, std::memory_order_relaxed); }

bool are_rings_refused() { return g_refused.load(std::memory_order_relaxed); }

Driven start_driving() {
  const bool by_hand = g_by_hand.load(std::memory_order_relaxed);
  if (!by_hand) std::call_once(g_started, [] { std::thread(run).detach(); });
  return {by_hand, by_hand && g_each_doorbell.load(std::memory_order_relaxed)};
}

bool pump() {
  bool any = false;
  for (Nic* n : every_device()) {
    const std::lock_guard hold(n->port.lock);
    any |= n->port.work();
  }
  return any;
}

}  // namespace vireo::softnic
