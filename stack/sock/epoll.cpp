// Notification: the items' sockets notify the epoll, which wakes the threads that sleep on it.
#include "stack/sock/epoll.h"

#include <utility>

#include "core/user_memory.h"
#include "stack/sock/blocking.h"

namespace vireo {

Epoll::~Epoll() {
  for (Item& i : items_)
    if (i.in_use) i.target->ready.remove(i.watcher);
  // Others may sleep on it next: it must be in no kernel epoll of this one's, which a dup keeps.
  if (alone_ != nullptr) delete alone_;
  const LockGuard guard(ready_lock_);
  ready_.clear();
  dirty_.clear();
}

void free_epoll(File& f) noexcept { delete std::exchange(f.epoll, nullptr); }

void Epoll::notify(Watcher& w, ReadyBits happened) noexcept {
  Item& i = reinterpret_cast<Item&>(w);
  Epoll& e = *i.owner;
  if (happened == kLeavesKernel) [[unlikely]]
    return e.leave_raw(i);
  {
    const LockGuard guard(e.ready_lock_);
    if ((happened & (kModeChanged | kFileClosed)) != 0) [[unlikely]] {
      i.closed |= (happened & kFileClosed) != 0;
      if (!i.dirty) {
        i.dirty = true;
        e.dirty_.push_back(i);
      }
      e.set_attention();
    }
    if (i.muted && (happened & (kModeChanged | kFileClosed)) == 0) return;
    if (!i.muted && (happened & ~(kModeChanged | kFileClosed)) != 0) e.push(i);
    e.wake_one();
  }
  // For an epoll that is itself watched. Its lock is a different one: nesting has no loops.
  if (e.self_.ready.is_watched()) e.self_.ready.notify(kReadyIn | (happened & kModeChanged));
}

void Epoll::push(Item& i, bool front) noexcept {
  if (i.ready_hook.is_linked()) return;
  if (front)
    ready_.push_front(i);
  else
    ready_.push_back(i);
  ++ready_count_;
  set_attention();
}

void Epoll::queue(Item& i) noexcept {
  {
    const LockGuard guard(ready_lock_);
    if (i.ready_hook.is_linked()) return;  // outer epolls were notified already, as in Linux
    push(i);
    wake_one();
  }
  if (self_.ready.is_watched()) self_.ready.notify(kReadyIn);
}

void Epoll::set_attention() noexcept {
  // Pairs with the acquire in wants().
  attention_.store(
      static_cast<uint8_t>((ready_count_ != 0 ? kReady : 0) | (dirty_.empty() ? 0 : kDirty) |
                           (sleepers_.empty() ? 0 : kSleeper)),
      std::memory_order_release);
}

void Epoll::wake_one() noexcept {
  if (sleepers_.empty()) return;
  Sleeper& s = sleepers_.front();
  sleepers_.pop_front();
  set_attention();
  s.event->signal();
}

void Epoll::wake_all() noexcept {
  {
    const LockGuard guard(ready_lock_);
    while (!sleepers_.empty()) wake_one();
  }
  if (self_.ready.is_watched()) self_.ready.notify(kModeChanged);
}

bool Epoll::arm(Sleeper& s, EventFd& event) noexcept {
  const LockGuard guard(ready_lock_);
  if (ready_count_ != 0 || !dirty_.empty()) return false;
  s.event = &event;
  sleepers_.push_front(s);
  set_attention();
  return true;
}

void Epoll::disarm(Sleeper& s) noexcept {
  const LockGuard guard(ready_lock_);
  if (s.hook.is_linked()) sleepers_.erase(sleepers_.iterator_to(s));
  set_attention();
}

void Epoll::pass_on() noexcept {
  // A thread that went to sleep before the remaining events is on the sleeper list by now.
  if (!pending() || !wants(kSleeper)) return;
  const LockGuard guard(ready_lock_);
  if (ready_count_ != 0 || !dirty_.empty()) wake_one();
}

void Epoll::settle_dirty(int epoll_fd) noexcept {
  if (!wants(kDirty)) return;
  for (;;) {
    Item* i = nullptr;
    bool closed = false;
    {
      const LockGuard guard(ready_lock_);
      if (dirty_.empty()) return;
      i = &dirty_.front();
      dirty_.pop_front();
      i->dirty = false;
      closed = i->closed;
      set_attention();
    }
    if (closed || !i->target.is_alive()) {
      erase(epoll_fd, *i);
    } else {
      (void)settle(epoll_fd, *i, false);
      queue_if_ready(*i);
    }
  }
}

void Epoll::reset_after_fork() noexcept VIREO_NO_THREAD_ANALYSIS {
  ready_lock_.reset_after_fork();
  ready_.clear();
  dirty_.clear();
  sleepers_.clear();
  ready_count_ = 0;
  (void)hybrid_.release();  // its descriptor is closed with all of Vireo's own
  hybrid_count_ = 0;
  alone_ = nullptr;  // likewise, and the kernel's epoll is the parent's, too
  is_alone_taken_.store(false, std::memory_order_relaxed);
  has_void_ = true;
  for (EngineCount& c : engines_) c = {};
  for (Item& i : items_) {
    if (!i.in_use) continue;
    i.engine = nullptr;
    i.kernel_bits = 0;
    i.kernel_fd = i.nested_fd = -1;
    i.closed = false;
    if (i.place == Place::kHybrid) i.place = Place::kNowhere;
    // The mode of its File has changed.
    i.dirty = true;
    dirty_.push_back(i);
    watch(i);
  }
  set_attention();
}

}  // namespace vireo
