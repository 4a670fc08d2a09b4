#include "tests/apparatus/softnic/pump.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/assert.h"
#include "core/own_thread.h"
#include "dev/shm/wire.h"
#include "tests/apparatus/softnic/fork.h"
#include "tests/apparatus/softnic/kernel_calls.h"
#include "tests/apparatus/softnic/nic.h"

namespace vireo::softnic {
namespace {

std::atomic<bool> g_by_hand{false}, g_each_doorbell{true}, g_refused{false};
std::atomic<bool> g_has_thread{false};
constexpr long kMaxRestNs = 1'000'000;  // new rings tell nobody

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

/// What tells the thread of a frame: the words of all wires by one futex_waitv(2), which is
/// quicker, or else their descriptors.
class Bells {
 public:
  void clear() {
    words_.clear();
    fds_.clear();
    has_rung_ = false;
  }
  /// Of a port that is armed; holder of its lock.
  void add(const Port& port, bool by_word) {
    const auto* const word = by_word ? port.wait_word() : nullptr;
    if (word != nullptr && words_.size() < FUTEX_WAITV_MAX) {
      const uint32_t value = word->load(std::memory_order_acquire);  // pairs with store_and_look()
      has_rung_ |= (value & kByWord) == 0;
      words_.push_back({value, reinterpret_cast<uintptr_t>(word), FUTEX_32, 0});
    }
    if (!by_word)
      for (const int fd : port.wait_fds()) fds_.push_back({fd, POLLIN, 0});
  }
  /// @return true: one has told.
  bool wait(long ns) {
    if (has_rung_) return true;
    return words_.empty() ? kernel::wait_readable(fds_, ns) : kernel::wait_words(words_, ns);
  }

 private:
  std::vector<futex_waitv> words_;
  std::vector<pollfd> fds_;
  bool has_rung_ = false;
};

bool has_word_or_none(Nic* n) {
  const std::lock_guard hold(n->port.lock);
  return !n->port.is_direct() || !n->port.is_plugged() || n->port.wait_word() != nullptr;
}

/// Sleeps until there is something to bring. Programs that poll their rings take whole processors,
/// and a device that waited for their slices to end would be none: it goes before them where it
/// may, and is away most of the time.
[[noreturn]] void run() {
  prctl(PR_SET_TIMERSLACK, 1);  // else the kernel makes 60 us of a nap
  const sched_param first{1};
  (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);  // needs CAP_SYS_NICE
  Whereabouts whereabouts;
  Bells bells;
  for (bool told = false;;) {
    bells.clear();
    Port::Rest rest{kMaxRestNs};
    if (!g_by_hand.load(std::memory_order_relaxed)) {
      const auto nics = every_device();
      const bool by_word = std::all_of(nics.begin(), nics.end(), has_word_or_none);
      for (Nic* n : nics) {
        const std::lock_guard hold(n->port.lock);
        if (!n->port.is_direct()) continue;
        const Port::Rest wish = n->port.tend(told, by_word);
        rest = {std::min(rest.ns, wish.ns), rest.may_be_told && wish.may_be_told};
        whereabouts.keep_off(n->port.rung_on());
        if (wish.is_armed) bells.add(n->port, by_word);
      }
    }
    whereabouts.settle();
    told = rest.may_be_told && rest.ns > 0 && bells.wait(rest.ns);
    if (!rest.may_be_told) sleep_ns(rest.ns);
  }
}

void start_thread() {
  pthread_t thread;
  const int e = start_own_thread(thread, [](void*) -> void* { run(); }, nullptr);
  VIREO_ASSERT(e == 0);
  pthread_detach(thread);
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
  if (!by_hand && !g_has_thread.exchange(true)) start_thread();
  return {by_hand, by_hand && g_each_doorbell.load(std::memory_order_relaxed)};
}

void forget_driving() { g_has_thread.store(false, std::memory_order_relaxed); }

bool pump() {
  bool any = false;
  for (Nic* n : every_device()) {
    const std::lock_guard hold(n->port.lock);
    any |= n->port.work();
  }
  return any;
}

}  // namespace vireo::softnic
