// Eventfds for sleeping threads, lent for one sleep and kept for the next.
#include <new>

#include "stack/sock/process.h"

namespace vireo {

Result<Waiter*> Stack::take_waiter() {
  {
    const LockGuard guard(waiter_lock_);
    if (Waiter* w = free_waiters_; w != nullptr) {
      free_waiters_ = w->next;
      return w;
    }
  }
  auto event = EventFd::create();
  if (!event) return std::unexpected(event.error());
  auto* w = new (std::nothrow) Waiter;
  if (w == nullptr) return fail(ENOMEM, "waiter");
  w->event = std::move(*event);
  w->watcher.notify = [](Watcher& self, ReadyBits) noexcept {
    // The watcher is the first member: the waiter begins where it does.
    reinterpret_cast<Waiter*>(&self)->event.signal();
  };
  return w;
}

void Stack::put_waiter(Waiter& w) {
  w.event.drain();
  const LockGuard guard(waiter_lock_);
  w.next = free_waiters_;
  free_waiters_ = &w;
}

}  // namespace vireo
