// Lends eventfds, and keeps the returned ones.
#include "stack/sock/waiters.h"

#include <cerrno>
#include <new>
#include <utility>

namespace vireo {

Waiters::~Waiters() {
  while (free_ != nullptr) delete std::exchange(free_, free_->next);
}

Result<Waiter*> Waiters::take() {
  {
    const LockGuard guard(lock_);
    if (Waiter* w = free_; w != nullptr) {
      free_ = w->next;
      return w;
    }
  }
  auto event = EventFd::create();
  if (!event) return std::unexpected(event.error());
  auto* w = new (std::nothrow) Waiter;
  if (w == nullptr) return fail(ENOMEM, "waiter");
  w->event = std::move(*event);
  w->watcher.notify = [](Watcher& self, ReadyBits) noexcept {
    // The watcher is the first member: both have the same address.
    reinterpret_cast<Waiter*>(&self)->event.signal();
  };
  return w;
}

void Waiters::put(Waiter& w) {
  const LockGuard guard(lock_);
  w.next = free_;
  free_ = &w;
}

}  // namespace vireo
