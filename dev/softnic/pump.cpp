#include "dev/softnic/pump.h"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "dev/softnic/nic.h"

namespace vireo::softnic {
namespace {

std::atomic<bool> g_by_hand{false};
std::once_flag g_started;

void sleep_ns(long ns) {
  const timespec t{0, ns};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &t, nullptr);
}

/// Spins while there is work, then gives the processor away, then sleeps.
void run() {
  constexpr unsigned kSpins = 200, kYields = 2000;
  constexpr long kNapNs = 50'000, kSleepNs = 1'000'000;
  std::vector<Nic*> all = every_device();
  for (unsigned idle = 0;; ++idle) {
    if (g_by_hand.load(std::memory_order_relaxed)) {
      sleep_ns(kSleepNs);
      continue;
    }
    if (idle % kYields == 0) all = every_device();
    bool direct = false;
    for (Nic* n : all) {
      const std::lock_guard hold(n->port.lock);
      if (!n->port.is_direct()) continue;
      direct = true;
      if (n->port.work()) idle = 0;
    }
    if (!direct)
      sleep_ns(kSleepNs);
    else if (idle > kYields)
      sleep_ns(kNapNs);
    else if (idle > kSpins)
      sched_yield();
  }
}

}  // namespace

void drive(bool by_hand) { g_by_hand.store(by_hand, std::memory_order_relaxed); }

bool start_driving() {
  const bool by_hand = g_by_hand.load(std::memory_order_relaxed);
  if (!by_hand) std::call_once(g_started, [] { std::thread(run).detach(); });
  return by_hand;
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
