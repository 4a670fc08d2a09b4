// The items of an epoll: ADD, MOD, DEL.
#include <new>

#include "stack/sock/epoll.h"
#include "stack/sock/served_by.h"

namespace vireo {
namespace {

/// Events that EPOLLEXCLUSIVE may be combined with (EPOLLEXCLUSIVE_OK_BITS).
constexpr uint32_t kExclusiveOk =
    EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | static_cast<uint32_t>(EPOLLWAKEUP) |
    static_cast<uint32_t>(EPOLLET) | static_cast<uint32_t>(EPOLLEXCLUSIVE);

Result<void> from_kernel(int r, const char* where) {
  if (r < 0) return fail_errno(where);
  return {};
}

}  // namespace

Result<void> Epoll::ctl(int epoll_fd, int op, const Handle& target, epoll_event event) noexcept {
  settle_dirty(epoll_fd);
  if (target.file == &self_) return fail(EINVAL, "epoll_ctl");
  if (op != EPOLL_CTL_DEL && (event.events & EPOLLEXCLUSIVE) != 0) {
    const bool is_epoll = target->kind.load(std::memory_order_acquire) == FileKind::kEpoll;
    if (op == EPOLL_CTL_MOD || is_epoll || (event.events & ~kExclusiveOk) != 0)
      return fail(EINVAL, "epoll_ctl");
  }
  Item* i = find(target);
  switch (op) {
    case EPOLL_CTL_ADD:
      if (i != nullptr) return fail(EEXIST, "epoll_ctl");
      return add(epoll_fd, target, event);
    case EPOLL_CTL_MOD:
      // The kernel may have it from a time before it had a File.
      if (i == nullptr) return ctl_raw(epoll_fd, op, target.fd, &event);
      if (i->has(EPOLLEXCLUSIVE)) return fail(EINVAL, "epoll_ctl");
      return modify(epoll_fd, *i, event);
    case EPOLL_CTL_DEL:
      if (i == nullptr) return ctl_raw(epoll_fd, op, target.fd, &event);
      erase(epoll_fd, *i);
      return {};
    default:
      return fail(EINVAL, "epoll_ctl");
  }
}

Result<void> Epoll::ctl_raw(int epoll_fd, int op, int fd, const epoll_event* event) noexcept {
  const auto done =
      from_kernel(libc().epoll_ctl(epoll_fd, op, fd, const_cast<epoll_event*>(event)), "epoll_ctl");
  if (!done) return done;
  if (op == EPOLL_CTL_ADD) ++raw_count_;
  if (op == EPOLL_CTL_DEL && raw_count_ != 0) --raw_count_;
  return {};
}

void Epoll::use_void_items() noexcept {
  has_void_ = false;
  for (Item& i : items_)
    if (i.in_use && i.target.is_alive()) (void)sock::use(i.target, "epoll_wait");
}

Epoll::Item* Epoll::find(const Handle& target) noexcept {
  const auto it = by_key_.find(key_of(target));
  return it != by_key_.end() && it->second->target.generation == target.generation ? it->second
                                                                                   : nullptr;
}

Epoll::Item& Epoll::new_item() noexcept {
  if (!free_items_.empty()) {
    Item& i = items_[free_items_.back()];
    free_items_.pop_back();
    return i;
  }
  Item& i = items_.emplace_back();
  i.index = static_cast<uint32_t>(items_.size() - 1);
  i.owner = this;
  i.watcher.notify = notify;
  // So that erase() need not allocate.
  if (free_items_.capacity() < items_.size()) free_items_.reserve(items_.size() * 2);
  return i;
}

Result<void> Epoll::add(int epoll_fd, const Handle& target, const epoll_event& event) noexcept {
  if (const auto stale = by_key_.find(key_of(target)); stale != by_key_.end())
    erase(epoll_fd, *stale->second);  // the File was closed, and its slot has just been reused
  const bool is_epoll = target->kind.load(std::memory_order_acquire) == FileKind::kEpoll;
  if (is_epoll) {
    epoll_event none{};
    const auto judged =
        from_kernel(libc().epoll_ctl(epoll_fd, EPOLL_CTL_ADD, target.fd, &none), "epoll_ctl");
    if (!judged) return judged;
    ++nested_count_;
  }
  Item& i = new_item();
  i.target = target;
  i.event = event;
  i.event.events |= EPOLLERR | EPOLLHUP;
  i.in_use = true;
  i.disarmed = false;
  i.is_epoll = is_epoll;
  i.kernel_bits = 0;
  i.place = Place::kNowhere;
  by_key_[key_of(target)] = &i;
  // The watcher first, then the mode: a change in between is notified.
  watch(i);
  if (auto settled = settle(epoll_fd, i, false); !settled) {
    erase(epoll_fd, i);
    return settled;
  }
  if (!target.is_alive()) {  // closed by another thread meanwhile
    erase(epoll_fd, i);
    return fail(EBADF, "epoll_ctl");
  }
  queue_if_ready(i);
  return {};
}

Result<void> Epoll::modify(int epoll_fd, Item& i, const epoll_event& event) noexcept {
  i.target->ready.remove(i.watcher);
  i.event = event;
  i.event.events |= EPOLLERR | EPOLLHUP;
  i.disarmed = false;
  i.kernel_bits = 0;
  watch(i);
  auto settled = settle(epoll_fd, i, true);
  if (!i.target.is_alive()) {
    // Its watcher was dismissed while off the list, or will be notified.
    erase(epoll_fd, i);
    return fail(EBADF, "epoll_ctl");
  }
  queue_if_ready(i);
  return settled;
}

/// The item's watcher must be on no list.
void Epoll::watch(Item& i) noexcept {
  {
    const LockGuard guard(ready_lock_);
    i.muted = false;
  }
  i.watcher.interest = i.event.events;
  i.target->ready.add(i.watcher);
}

/// Reports events that are ready already; edges count from here on.
void Epoll::queue_if_ready(Item& i) noexcept {
  bool ours = false;
  {
    sock::EngineHold hold;
    // A nested epoll is evaluated when the item is taken: here its locks could be taken twice.
    if (!i.is_epoll && evaluate(i, hold, ours) == 0) return;
  }
  queue(i);
}

void Epoll::erase(int epoll_fd, Item& i) noexcept {
  i.target->ready.remove(i.watcher);  // no notification after this
  {
    const LockGuard guard(ready_lock_);
    if (i.ready_hook.is_linked()) {
      ready_.erase(ready_.iterator_to(i));
      --ready_count_;
    }
    if (i.dirty) dirty_.erase(dirty_.iterator_to(i));
    i.dirty = i.closed = false;
    set_attention();
  }
  leave_kernel(epoll_fd, i);
  if (i.is_epoll) {
    --nested_count_;
    // The kernel has removed a closed one itself.
    if (i.target.is_alive() && fd_table().find(i.target.fd).file == i.target.file)
      (void)libc().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, i.target.fd, nullptr);
  }
  count_engine(i, nullptr);
  if (const auto it = by_key_.find(key_of(i.target)); it != by_key_.end() && it->second == &i)
    by_key_.erase(it);
  i.in_use = false;
  ++i.generation;
  i.target = {};
  free_items_.push_back(i.index);
}

void Epoll::count_engine(Item& i, Engine* e) noexcept {
  if (i.engine == e) return;
  bool changed = false;
  const auto slots = [this] { return std::span(engines_).first(engine_slots_); };
  for (EngineCount& c : slots())
    if (i.engine != nullptr && c.engine == i.engine && --c.items == 0) {
      c.engine = nullptr;
      changed = true;
    }
  i.engine = nullptr;
  const auto take = [&](Engine* slot) {
    for (EngineCount& c : slots())
      if (c.engine == slot) {
        changed |= c.items == 0;
        c.engine = e;
        ++c.items;
        i.engine = e;
        return true;
      }
    return false;
  };
  if (e != nullptr && !take(e) && !take(nullptr) && engine_slots_ < std::size(engines_)) {
    ++engine_slots_;
    take(nullptr);
  }
  // Sleeping threads wait on the wrong descriptors now.
  if (changed) wake_all();
}

void Epoll::collect_engines(sock::EngineSet& set) noexcept {
  for (const EngineCount& c : std::span(engines_).first(engine_slots_)) set.add(c.engine);
  if (nested_count_ == 0) return;
  for (Item& i : items_) {
    if (!i.in_use || !i.is_epoll) continue;
    const LockGuard guard(i.target->control);
    if (i.target.is_alive()) i.target->epoll->collect_engines(set);
  }
}

}  // namespace vireo
