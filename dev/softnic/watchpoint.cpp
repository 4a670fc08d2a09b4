#include "dev/softnic/watchpoint.h"

#include <dirent.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "core/high_fd.h"

/// As sigaction(3), which a preloaded library may take for the program's and put off.
extern "C" int __sigaction(int number, const struct sigaction* now, struct sigaction* before);

namespace vireo::softnic {
namespace {

constexpr int kMost = 4;        // of an x86 processor
constexpr int kTrapPerf = 6;    // TRAP_PERF, which older headers of the C library lack
constexpr int kMostRounds = 8;  // over the threads, as long as there are new ones

struct Slot {
  std::atomic<uintptr_t> at{0};  ///< 0: free. Set last: pairs with the handler's look
  void (*call)(void*) = nullptr;
  void* of = nullptr;
};
Slot g_slots[kMost];
std::mutex g_lock;  // of who takes and frees them
struct sigaction g_before;

void trapped(int number, siginfo_t* info, void* context) {
  const int before = errno;
  if (info->si_code == kTrapPerf) {
    const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
    for (Slot& s : g_slots)
      if (s.at.load(std::memory_order_acquire) == at) s.call(s.of);
  } else if ((g_before.sa_flags & SA_SIGINFO) != 0) {
    g_before.sa_sigaction(number, info, context);
  } else if (g_before.sa_handler == SIG_DFL) {
    __sigaction(number, &g_before, nullptr);  // a breakpoint of nobody's: it ends the process
    raise(number);
  } else if (g_before.sa_handler != SIG_IGN) {
    g_before.sa_handler(number);
  }
  errno = before;
}

void handle_traps() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction a{};
    a.sa_sigaction = trapped;
    a.sa_flags = SA_SIGINFO | SA_RESTART;
    __sigaction(SIGTRAP, &a, &g_before);
  });
}

std::vector<int> threads() {
  std::vector<int> found;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return found;
  while (const dirent* e = readdir(folder))
    if (const int id = std::atoi(e->d_name); id > 0) found.push_back(id);
  closedir(folder);
  return found;
}

int open_event(uintptr_t at, int thread) {
  perf_event_attr a{};
  a.size = sizeof a;
  a.type = PERF_TYPE_BREAKPOINT;
  a.bp_type = HW_BREAKPOINT_W;
  a.bp_addr = at;
  a.bp_len = HW_BREAKPOINT_LEN_8;
  a.sample_period = 1;
  a.sigtrap = 1;
  a.remove_on_exec = 1;
  a.inherit = 1;
  a.inherit_thread = 1;
  a.exclude_kernel = 1;
  a.exclude_hv = 1;
  return to_high_number(
      static_cast<int>(syscall(SYS_perf_event_open, &a, thread, -1, -1, PERF_FLAG_FD_CLOEXEC)));
}

}  // namespace

Watchpoint::Watchpoint(const std::byte* at, void (*call)(void*), void* of) {
  const std::lock_guard hold(g_lock);
  auto* slot = std::find_if(std::begin(g_slots), std::end(g_slots), [](const Slot& s) {
    return s.at.load(std::memory_order_relaxed) == 0;
  });
  if (slot == std::end(g_slots)) return;
  handle_traps();
  slot->call = call;
  slot->of = of;
  slot->at.store(reinterpret_cast<uintptr_t>(at), std::memory_order_release);
  slot_ = static_cast<int>(slot - g_slots);
  if (watch_threads(reinterpret_cast<uintptr_t>(at))) return;
  events_.clear();
  slot->at.store(0, std::memory_order_relaxed);
  slot_ = -1;
}

/// A thread that is started by one that is not watched yet is not watched either: until no new one
/// is found.
bool Watchpoint::watch_threads(uintptr_t at) {
  std::vector<int> known;
  for (int round = 0; round < kMostRounds; ++round) {
    bool is_complete = true;
    for (const int id : threads()) {
      if (std::find(known.begin(), known.end(), id) != known.end()) continue;
      known.push_back(id);
      is_complete = false;
      UniqueFd event(open_event(at, id));
      if (event)
        events_.push_back(std::move(event));
      else if (errno != ESRCH)  // it has ended
        return false;
    }
    if (is_complete) break;
  }
  return !events_.empty();
}

Watchpoint::~Watchpoint() {
  if (slot_ < 0) return;
  events_.clear();  // first: a trap is taken before the store's thread goes on
  const std::lock_guard hold(g_lock);
  g_slots[slot_].at.store(0, std::memory_order_relaxed);
}

}  // namespace vireo::softnic
