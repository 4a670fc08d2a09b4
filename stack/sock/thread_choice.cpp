// The choices of threads, by their pthread_t: one that has ended may leave its choice to another
// that gets its number, as in libvma.
#include "stack/sock/thread_choice.h"

#include <atomic>
#include <unordered_map>

#include "core/lock.h"

namespace vireo::thread_choice {
namespace {

Lock g_lock;
std::atomic<bool> g_has_any{false};
/// Made at the first choice, never freed: a thread may open sockets while the process ends.
std::unordered_map<pthread_t, bool>* g_choices VIREO_GUARDED_BY(g_lock) = nullptr;

}  // namespace

bool has_any() noexcept { return g_has_any.load(std::memory_order_relaxed); }

Carriage of_caller() noexcept {
  const LockGuard guard(g_lock);
  if (g_choices == nullptr) return Carriage::kUndecided;
  const auto found = g_choices->find(::pthread_self());
  if (found == g_choices->end()) return Carriage::kUndecided;
  return found->second ? Carriage::kCarried : Carriage::kDisabled;
}

void set(pthread_t thread, bool is_carried) {
  const LockGuard guard(g_lock);
  if (g_choices == nullptr) g_choices = new std::unordered_map<pthread_t, bool>;
  (*g_choices)[thread] = is_carried;
  g_has_any.store(true, std::memory_order_relaxed);
}

void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.lock(); }
void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.unlock(); }
void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.reset_after_fork(); }

}  // namespace vireo::thread_choice
