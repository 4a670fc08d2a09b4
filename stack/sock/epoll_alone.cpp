// A wait for the kernel's descriptors alone is one system call, as without Vireo. An eventfd in the
// program's epoll ends it if another thread adds what is not the kernel's, or moves a socket.
#include <algorithm>

#include "stack/sock/epoll.h"
#include "stack/sock/stack.h"

namespace vireo {

bool Epoll::arm_alone(int epoll_fd) noexcept {
  settle_dirty(epoll_fd);
  if (raw_count_ == 0 || hybrid_count_ != 0 || nested_count_ != 0 || has_void_ || rebuild_ ||
      epoll_fd < 0 || is_alone_taken_.exchange(true, std::memory_order_acquire))
    return false;
  if (alone_ == nullptr) {
    const auto waiter = self_.stack->waiters().take();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = alone_data();
    if (waiter && libc().epoll_ctl(epoll_fd, EPOLL_CTL_ADD, (*waiter)->event.fd(), &event) == 0)
      alone_ = *waiter;
    else if (waiter)
      self_.stack->waiters().put(**waiter);
  }
  if (alone_ != nullptr && arm(alone_sleeper_, alone_->event)) return true;
  is_alone_taken_.store(false, std::memory_order_release);
  return false;
}

void Epoll::disarm_alone() noexcept {
  bool is_woken = false;
  {
    const LockGuard guard(ready_lock_);
    is_woken = !alone_sleeper_.hook.is_linked();
    if (!is_woken) sleepers_.erase(sleepers_.iterator_to(alone_sleeper_));
    set_attention();
  }
  if (is_woken) alone_->event.drain();
  is_alone_taken_.store(false, std::memory_order_release);
}

size_t Epoll::without_wake(std::span<epoll_event> events) const noexcept {
  if (alone_ == nullptr) return events.size();
  const auto rest = std::ranges::remove_if(
      events, [this](const epoll_event& e) { return e.data.u64 == alone_data(); });
  return events.size() - rest.size();
}

}  // namespace vireo
