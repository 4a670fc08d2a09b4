#include "dev/softnic/pump.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "dev/softnic/nic.h"

namespace vireo::softnic {
namespace {

std::atomic<bool> g_by_hand{false}, g_each_doorbell{true}, g_refused{false};
std::once_flag g_started;

void sleep_ns(long ns) {
  const timespec t{0, ns};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &t, nullptr);
}

/// Spins while there is work, and for a little longer; else naps. Programs that poll their rings
/// take whole processors, and a device that waited for their slices to end would be none: it goes
/// before them where it may.
void run() {
  constexpr unsigned kSpins = 50, kRounds = 4096;
  constexpr long kNapNs = 10'000, kSleepNs = 1'000'000;
  prctl(PR_SET_TIMERSLACK, 1);  // else the kernel makes 60 us of the nap
  const sched_param first{1};
  (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);  // needs CAP_SYS_NICE
  std::vector<Nic*> all = every_device();
  for (unsigned idle = 0;; ++idle) {
    if (g_by_hand.load(std::memory_order_relaxed)) {
      sleep_ns(kSleepNs);
      continue;
    }
    if (idle % kRounds == 0) all = every_device();
    bool direct = false;
    for (Nic* n : all) {
      const std::lock_guard hold(n->port.lock);
      if (!n->port.is_direct()) continue;
      direct = true;
      if (n->port.work()) idle = 0;
    }
    if (!direct)
      sleep_ns(kSleepNs);
    else if (idle > kSpins)
      sleep_ns(kNapNs);
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
