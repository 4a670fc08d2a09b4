// What an epoll reports, and to whom.
#include "stack/sock/epoll.h"

#include <algorithm>
#include <climits>
#include <new>

#include "core/user_memory.h"
#include "stack/sock/blocking.h"
#include "stack/sock/multiplex.h"

namespace vireo {

Epoll::~Epoll() {
  for (Item& i : items_)
    if (i.in_use) i.target->ready.remove(i.watcher);
  const LockGuard guard(ready_lock_);
  ready_.clear();
  dirty_.clear();
}

void free_epoll(File& f) noexcept { delete std::exchange(f.epoll, nullptr); }

// ---- notifications

void Epoll::notify(Watcher& w, ReadyBits happened) noexcept {
  Item& i = reinterpret_cast<Item&>(w);
  Epoll& e = *i.owner;
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
  // An epoll that is itself watched. Its own lock is another object: nesting has no loops.
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
    if (i.ready_hook.is_linked()) return;  // an outer epoll has been told, as Linux sees it
    push(i);
    wake_one();
  }
  if (self_.ready.is_watched()) self_.ready.notify(kReadyIn);
}

void Epoll::set_attention() noexcept {
  // release pairs with the acquire in wants().
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
  // Whoever slept before what is left came was on the list before.
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

// ---- what is ready

/// The events to report now; 0: none, or none any more. `ours`: our side has some of them.
uint32_t Epoll::evaluate(Item& i, sock::EngineHold& hold, bool& ours) noexcept {
  ours = false;
  if (i.disarmed) return 0;
  uint32_t bits = 0;
  if (i.is_epoll) [[unlikely]] {
    hold.take(nullptr);  // control locks come before the engine's
    const LockGuard guard(i.target->control);
    if (i.target.is_alive() && i.target->epoll->is_ready(name_of(i.target))) bits = kReadyIn;
    ours = (bits & i.event.events) != 0;
    return bits & i.event.events;
  }
  bits = sock::ready_under(hold, i.target, i.event.events) & i.event.events;
  ours = bits != 0;
  // The kernel's level is known for one look; an edge or a shot is kept until it is told.
  if (i.place == Place::kHybrid && (i.kernel_look == look_ || i.has(EPOLLET | EPOLLONESHOT)))
    bits |= i.kernel_bits & i.event.events;
  return bits;
}

/// What nearly every call finds: a few items, of the only engine, whose lock is held, with nothing
/// from the kernel; the one that was told last, which may be ready no more, is among them. They are
/// asked where they stand, so that each lock is taken once. nullopt: go the full way.
std::optional<size_t> Epoll::take_few(const Engine& e, std::span<epoll_event> out) noexcept {
  constexpr uint32_t kFew = 8;
  const LockGuard guard(ready_lock_);
  uint32_t left = ready_count_;
  if (left - 1 >= kFew) return std::nullopt;
  for (const Item& i : ready_)
    if (i.is_epoll || i.has(EPOLLONESHOT) || i.kernel_bits != 0 || !i.target.is_alive() ||
        i.target->engine.load(std::memory_order_relaxed) != &e)
      return std::nullopt;
  size_t done = 0;
  do {
    Item& i = ready_.front();
    const uint32_t events = readiness(*i.target.file, i.event.events) & i.event.events;
    if (events != 0) {
      if (!is_writable(&out[done])) [[unlikely]]
        break;  // what has no place stays on the list, as in the kernel
      out[done].events = events;
      out[done++].data = i.event.data;
    }
    if (events == 0 || i.has(EPOLLET)) {
      ready_.pop_front();
      --ready_count_;
      set_attention();
    } else if (ready_count_ != 1) {
      ready_.splice(ready_.end(), ready_, ready_.begin());  // as Linux: who was told goes last
    }
  } while (--left != 0 && done < out.size());
  return done;
}

bool Epoll::poll_and_take(Engine& e, std::span<epoll_event> out, Instant now,
                          size_t& taken) noexcept VIREO_NO_THREAD_ANALYSIS {
  if (!take_to_poll(e, now)) return true;
  const bool busy = e.poll_to_return(now, PollOf::kWait);
  // The control lock comes before the engine's, so that it can only be tried for.
  if (wants(kReady) && !wants(kDirty) && self_.control.try_lock()) {
    const bool has_kernel = hybrid_count_ != 0 || raw_count_ != 0;
    if (only_engine() == &e && (!has_kernel || now < next_look_))
      taken = take_few(e, out).value_or(0);
    self_.control.unlock();
  }
  e.unlock();
  return busy;
}

namespace {

/// The first `n` of the program's places for events, or fewer: those before the first that is not
/// there. What has no place stays on the list, as in the kernel.
std::span<epoll_event> writable(std::span<epoll_event> out, size_t n) noexcept {
  n = std::min(n, out.size());
  while (n != 0 && !is_writable(out.data(), n * sizeof(epoll_event))) [[unlikely]]
    --n;
  return out.first(n);
}

}  // namespace

size_t Epoll::take_ready(std::span<epoll_event> out) noexcept {
  if (Engine* const e = only_engine(); e != nullptr && !out.empty()) {
    sock::EngineHold hold;
    hold.take(e);
    if (const auto n = take_few(*e, out)) return *n;
  }
  constexpr size_t kBatch = 32;
  size_t done = 0;
  size_t left = 0;  // of those that were ready at the start: what is put back waits its turn
  {
    const LockGuard guard(ready_lock_);
    left = ready_count_;
  }
  out = writable(out, left);
  while (left != 0 && done < out.size()) {
    Item* batch[kBatch];
    Item* again[kBatch];
    Item* drop[kBatch];
    size_t n = 0;
    size_t m = 0;
    size_t d = 0;
    {
      const LockGuard guard(ready_lock_);
      const size_t most = std::min({kBatch, out.size() - done, left});
      // Off the list before the level is asked: what comes later puts them there again.
      for (; n < most && ready_count_ != 0; ++n) {
        batch[n] = &ready_.front();
        ready_.pop_front();
        --ready_count_;
      }
    }
    if (n == 0) break;
    left -= n;
    {
      sock::EngineHold hold;
      for (size_t k = 0; k < n; ++k) {
        Item& i = *batch[k];
        bool ours = false;
        const uint32_t events = evaluate(i, hold, ours);
        const bool from_kernel = i.kernel_bits != 0;
        i.kernel_bits = 0;
        if (events == 0) continue;
        out[done].events = events;
        out[done++].data = i.event.data;
        if (i.has(EPOLLONESHOT)) {
          i.disarmed = true;
          again[m++] = &i;
          // The kernel disarmed its side only if that is where the event came from.
          if (!from_kernel && i.place == Place::kHybrid) drop[d++] = &i;
        } else if (ours && !i.has(EPOLLET)) {
          again[m++] = &i;
        }
      }
    }
    for (Item* i : std::span(drop, d)) leave_kernel(-1, *i);
    const LockGuard guard(ready_lock_);
    for (Item* i : std::span(again, m)) {
      if (i->disarmed)
        i->muted = true;
      else
        push(*i);
    }
    set_attention();
  }
  return done;
}

Result<size_t> Epoll::take_raw(int epoll_fd, std::span<epoll_event> out) noexcept {
  if (out.empty()) return 0;
  const int n = kernel::epoll_now(epoll_fd, out.data(), static_cast<int>(out.size()));
  if (n < 0) return fail_errno("epoll_wait");
  return static_cast<size_t>(n);
}

/// Is the kernel's side to be looked at by a call that may have something of ours?
bool Epoll::is_kernels_turn(sock::Look how, Instant now) noexcept {
  if ((hybrid_count_ == 0 && raw_count_ == 0) || !pending()) return false;
  if (how == sock::Look::kTimely) return now >= next_look_;
  const auto skip = static_cast<uint32_t>(self_.stack->settings().select_skip_os);
  return skip != 0 && ++skipped_ >= skip && now >= next_look_;
}

Result<int> Epoll::harvest(int epoll_fd, std::span<epoll_event> out, sock::Look how,
                           Instant now) noexcept {
  settle_dirty(epoll_fd);
  const bool look = how == sock::Look::kBoth || is_kernels_turn(how, now);
  if (look) {
    skipped_ = 0;
    next_look_ = now + sock::kBetweenLooks;
    look_at_hybrid();
  }
  size_t done = 0;
  // The two take turns at being first, so that neither can keep the other out.
  const bool raw = look && raw_count_ != 0 && epoll_fd >= 0;
  const bool raw_first = raw && (raw_first_ = !raw_first_);
  const auto take_from_kernel = [&]() -> Result<void> {
    const auto n = take_raw(epoll_fd, out.subspan(done));
    if (!n) return std::unexpected(n.error());
    done += *n;
    return {};
  };
  if (raw_first)
    if (const auto r = take_from_kernel(); !r) return std::unexpected(r.error());
  if (pending()) done += take_ready(out.subspan(done));
  if (raw && !raw_first) {
    const auto r = take_from_kernel();
    if (!r && done == 0) return std::unexpected(r.error());
  }
  if (look) ++look_;  // the kernel's levels were true for this look
  return static_cast<int>(done);
}

bool Epoll::is_ready(int epoll_fd) noexcept {
  settle_dirty(epoll_fd);
  look_at_hybrid();
  size_t left = 0;
  {
    const LockGuard guard(ready_lock_);
    left = ready_count_;
  }
  for (; left != 0; --left) {
    Item* i = nullptr;
    {
      const LockGuard guard(ready_lock_);
      if (ready_count_ == 0) break;
      i = &ready_.front();
      ready_.pop_front();
      --ready_count_;
      set_attention();
    }
    bool ours = false;
    bool found = false;
    {
      sock::EngineHold hold;
      found = evaluate(*i, hold, ours) != 0;
    }
    // A level of the kernel's alone is asked for anew at every look.
    if (!found) continue;
    const LockGuard guard(ready_lock_);
    push(*i, true);
    return true;
  }
  if (raw_count_ == 0 || epoll_fd < 0) return false;
  pollfd p{epoll_fd, POLLIN, 0};
  return kernel::poll_now(&p, 1) > 0;
}

void Epoll::reset_after_fork() noexcept VIREO_NO_THREAD_ANALYSIS {
  ready_lock_.reset_after_fork();
  ready_.clear();
  dirty_.clear();
  sleepers_.clear();
  ready_count_ = 0;
  (void)hybrid_.release();  // closed with all that are Vireo's own
  hybrid_count_ = 0;
  for (EngineCount& c : engines_) c = {};
  for (Item& i : items_) {
    if (!i.in_use) continue;
    i.engine = nullptr;
    i.kernel_bits = 0;
    i.kernel_fd = i.nested_fd = -1;
    i.closed = false;
    if (i.place == Place::kHybrid) i.place = Place::kNowhere;
    // Its File has another mode now.
    i.dirty = true;
    dirty_.push_back(i);
    watch(i);
  }
  set_attention();
}

// ---- the calls

namespace sock {
namespace {

/// A wait on one epoll.
class EpollCall {
 public:
  EpollCall(Handle h, std::span<epoll_event> out) noexcept : h_(h), out_(out) {}
  EpollCall(const EpollCall&) = delete;
  EpollCall& operator=(const EpollCall&) = delete;

  EngineSet engines;

  /// Before anything is waited for. Errors: EBADF.
  Result<void> begin() noexcept {
    const LockGuard guard(h_->control);
    if (!h_.is_alive()) return fail(EBADF, "epoll_wait");
    pin_.pin(*h_.file);
    refresh();
    return {};
  }
  bool poll(Instant now, size_t& taken) noexcept {
    if (engines.n != 1) return poll_all(engines, now);
    return h_->epoll->poll_and_take(*engines.at[0], out_, now, taken);
  }
  bool pending() const noexcept { return is_doubtful_ || h_->epoll->pending(); }
  int at_end() const noexcept { return 0; }
  Result<int> harvest(Look look, Instant now) noexcept {
    const LockGuard guard(h_->control);
    auto n = h_->epoll->harvest(fd_, out_, look, now);
    if (!n || *n != 0) return n;
    if (!is_writable(out_.data())) [[unlikely]]
      n = judge_place();
    if (n && *n == 0) refresh();  // it goes on waiting
    return n;
  }
  void begin_wait() noexcept { is_doubtful_ = !is_writable(out_.data()); }
  SleepList& sleep_list() noexcept {
    list_.at = fds_;
    list_.n = 0;
    if (hybrid_ >= 0) fds_[list_.n++] = {hybrid_, POLLIN, 0};
    fds_[list_.n++] = {fd_, POLLIN, 0};  // ignored if negative
    return list_;
  }
  bool arm(EventFd& event) noexcept { return !is_doubtful_ && h_->epoll->arm(sleeper_, event); }
  void disarm() noexcept { h_->epoll->disarm(sleeper_); }
  bool woken_by_kernel() const noexcept {
    for (nfds_t i = 0; i < list_.n; ++i)
      if (fds_[i].revents != 0) return true;
    return false;
  }
  void end() noexcept { h_->epoll->pass_on(); }

 private:
  /// Nothing can be written where the program wants its events. As Linux: that matters once there
  /// is one; but of an address that is no program's the kernel says so at once.
  Result<int> judge_place() noexcept {
    is_doubtful_ = false;
    if (h_->epoll->is_ready(fd_)) return fail(EFAULT, "epoll_wait");
    if (fd_ < 0) return 0;
    const int n = kernel::epoll_now(fd_, out_.data(), static_cast<int>(out_.size()));
    if (n < 0) return fail_errno("epoll_wait");
    return n;
  }
  void refresh() noexcept {
    engines.n = 0;
    h_->epoll->collect_engines(engines);
    hybrid_ = h_->epoll->hybrid_fd_if_any();
    fd_ = Epoll::name_of(h_);  // another thread may have closed the number: it waits on
  }

  Handle h_;
  std::span<epoll_event> out_;
  FilePin pin_;
  Epoll::Sleeper sleeper_;
  bool is_doubtful_ = false;  ///< judge_place() is to be asked
  int hybrid_ = -1;
  int fd_ = -1;
  SleepList list_;
  pollfd fds_[2 + SleepList::kExtra];
};

}  // namespace

Result<int> epoll_create(Stack& stack, int flags) {
  const int fd = libc().epoll_create1(flags);
  if (fd < 0) return fail_errno("epoll_create1");
  if (!stack.is_owner()) return fd;
  // No memory or no room in the table: the kernel's epoll serves what is the kernel's.
  auto made = fd_table().allocate();
  if (!made) return fd;
  File& f = **made;
  f.epoll = new (std::nothrow) Epoll(f);
  if (f.epoll == nullptr) {
    fd_table().free(f);
    return fd;
  }
  f.stack = &stack;
  f.flow = nullptr;
  f.stats = &stack.counters().unlisted();
  f.placeholder = false;
  f.engine.store(nullptr, std::memory_order_relaxed);
  f.mode.store(Mode::kKernel, std::memory_order_relaxed);
  f.nonblock.store(false, std::memory_order_relaxed);
  f.kind.store(FileKind::kEpoll, std::memory_order_release);
  forget(fd);  // the number was closed behind our back
  if (!fd_table().install(fd, f)) {
    free_epoll(f);
    fd_table().free(f);
  }
  return fd;
}

Result<void> epoll_ctl(Handle epoll, int op, int fd, const epoll_event* event) {
  if (op != EPOLL_CTL_DEL && !is_readable(event)) return fail(EFAULT, "epoll_ctl");
  if (epoll->kind.load(std::memory_order_acquire) != FileKind::kEpoll || is_protected_fd(fd)) {
    // The kernel says it in its own words.
    if (is_protected_fd(fd)) fd = -1;
    if (libc().epoll_ctl(epoll.fd, op, fd, const_cast<epoll_event*>(event)) != 0)
      return fail_errno("epoll_ctl");
    return {};
  }
  const LockGuard guard(epoll->control);
  if (!epoll.is_alive()) return fail(EBADF, "epoll_ctl");
  const Handle target = fd_table().find(fd);
  if (!target) return epoll->epoll->ctl_raw(epoll.fd, op, fd, event);
  return epoll->epoll->ctl(epoll.fd, op, target, op == EPOLL_CTL_DEL ? epoll_event{} : *event);
}

Result<int> epoll_wait(Handle epoll, std::span<epoll_event> events, const timespec* timeout,
                       const sigset_t* mask) {
  if (epoll->kind.load(std::memory_order_acquire) != FileKind::kEpoll)
    return fail(EINVAL, "epoll_wait");
  if (events.empty() || events.size() > INT_MAX / sizeof(epoll_event))
    return fail(EINVAL, "epoll_wait");
  EpollCall call(epoll, events);
  if (const auto begun = call.begin(); !begun) return std::unexpected(begun.error());
  const auto n = wait_multiplexed(*epoll->stack, call, timeout, mask);
  call.end();
  return n;
}

}  // namespace sock
}  // namespace vireo
