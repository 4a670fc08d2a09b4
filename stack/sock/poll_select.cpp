// poll(2) and select(2) over Vireo's and the kernel's descriptors: Vireo's by readiness() and a
// temporary watcher each, the kernel's by one ppoll.
#include <algorithm>
#include <climits>
#include <memory>
#include <new>

#include "stack/sock/epoll.h"
#include "stack/sock/inspection.h"
#include "stack/sock/multiplex.h"
#include "stack/sock/multiplex_wait.h"
#include "stack/sock/served_by.h"

namespace vireo::sock {
namespace {

/// An array on the stack, or on the heap if it is large. No memory is touched before resize().
template <class T, size_t kInline>
class CallArray {
 public:
  CallArray() = default;
  CallArray(const CallArray&) = delete;
  CallArray& operator=(const CallArray&) = delete;
  ~CallArray() {
    std::destroy_n(at_, size_);
    if (at_ != inline_at()) ::operator delete(at_);
  }
  /// Call once. @return false: no memory.
  bool resize(size_t n) noexcept {
    if (n > kInline) {
      auto* heap = static_cast<T*>(::operator new(n * sizeof(T), std::nothrow));
      if (heap == nullptr) return false;
      at_ = heap;
    }
    std::uninitialized_default_construct_n(at_, n);
    size_ = n;
    return true;
  }
  T* data() noexcept { return at_; }
  T& operator[](size_t i) noexcept { return at_[i]; }

 private:
  T* inline_at() noexcept { return reinterpret_cast<T*>(inline_); }
  alignas(T) std::byte inline_[sizeof(T) * kInline];
  T* at_ = inline_at();
  size_t size_ = 0;
};

/// The thread's last look at the kernel's side of a poll or select.
struct LastLook {
  uint64_t of = 0;     ///< PollCall::list_hash_
  Instant next;        ///< earliest next look for the same list
  uint32_t calls = 0;  ///< calls since then that found an event
};
[[gnu::tls_model("initial-exec")]] thread_local constinit LastLook t_last_look;

class PollCall {
 public:
  /// `always`: reported even if not requested (POLLERR and POLLHUP in poll, not in select).
  PollCall(std::span<pollfd> fds, short always) noexcept : fds_(fds), always_(always) {}
  PollCall(const PollCall&) = delete;
  PollCall& operator=(const PollCall&) = delete;
  ~PollCall() {
    for (size_t i = 0; watching_ && i < count_; ++i)
      entries_[i].target->ready.remove(entries_[i].watcher);
  }

  EngineSet engines;
  Stack* stack = nullptr;  ///< its settings apply

  /// Errors: ENOMEM.
  Result<void> begin() noexcept {
    for (const pollfd& p : fds_)
      if (fd_table().find(p.fd)) ++count_;
    // An epoll takes two kernel descriptors.
    if (!entries_.resize(count_) || !kernel_.resize(fds_.size() + count_ + SleepList::kExtra) ||
        !kernel_of_.resize(fds_.size() + count_))
      return fail(ENOMEM, "poll");
    size_t n = 0;
    for (size_t i = 0; i < fds_.size(); ++i) {
      const Handle h = n < count_ ? fd_table().find(fds_[i].fd) : Handle{};
      if (!h) continue;
      (void)use(h, "poll");
      Entry& e = entries_[n++];
      e.call = this;
      e.target = h;
      e.at = static_cast<uint32_t>(i);
      e.watcher.interest = static_cast<uint16_t>(fds_[i].events) | kModeChanged;
      e.watcher.notify = notify;
      if (stack == nullptr) stack = h->stack;
    }
    count_ = n;  // another thread may have closed some meanwhile
    if (stack == nullptr) stack = process_stack();
    list_kernel();
    return {};
  }

  /// One of them was no open descriptor from the start.
  bool was_closed() const noexcept { return was_closed_; }
  bool poll(Instant now, size_t&) noexcept { return poll_all(engines, now); }
  bool listens() const noexcept { return listens_; }
  bool pending() const noexcept { return hit_.load(std::memory_order_acquire); }

  Result<int> harvest(Look how, Instant now) noexcept {
    for (pollfd& p : fds_) p.revents = 0;
    // Pairs with the store in notify(): later events are seen next time.
    const bool hit = hit_.exchange(false, std::memory_order_acq_rel);
    bool look = how == Look::kBoth;
    if (hit && look_at_ours() && !look) look = is_kernels_turn(how, now);
    if (look) {
      const auto some = look_at_kernel(now);
      if (!some) return std::unexpected(some.error());
      // Vireo's side has no event; but for an epoll the kernel's result is only a part.
      if (!hit && *some) (void)look_at_ours();
    }
    // As in Linux, a number closed by another thread during the wait wakes no one; it is reported
    // after another wake-up, and at the end.
    const bool tells_closed = !has_looked_ || hit || woken_;
    woken_ = false;
    int n = 0;
    for (const pollfd& p : fds_) {
      if (p.revents == 0 || (p.revents == POLLNVAL && !tells_closed)) continue;
      ++n;
      was_closed_ |= p.revents == POLLNVAL && !has_looked_;
    }
    has_looked_ |= look;
    if (n == 0 && inspection::is_due() && inspection::show_all()) [[unlikely]] {
      hit_.store(true, std::memory_order_release);  // a callback may let some datagram be received
      return harvest(how, now);
    }
    return n;
  }
  /// The deadline has passed, and harvest() found nothing. @return descriptors to report anyway.
  int at_end() noexcept {
    if (closed_.load(std::memory_order_relaxed)) (void)look_at_ours();
    int n = 0;
    for (const pollfd& p : fds_) n += p.revents != 0 ? 1 : 0;
    return n;
  }

  void begin_wait() noexcept {
    watching_ = true;
    for (size_t i = 0; i < count_; ++i) entries_[i].target->ready.add(entries_[i].watcher);
    hit_.store(true, std::memory_order_release);  // for events before the watchers were added
  }
  SleepList& sleep_list() noexcept { return list_; }
  bool arm(EventFd& event) noexcept {
    // seq_cst, as in notify(): either notify() sees the eventfd, or this sees the hit.
    event_.store(&event, std::memory_order_seq_cst);
    if (!hit_.load(std::memory_order_seq_cst)) return true;
    event_.store(nullptr, std::memory_order_relaxed);
    return false;
  }
  void disarm() noexcept { event_.store(nullptr, std::memory_order_relaxed); }
  bool woken_by_kernel() noexcept {
    for (nfds_t i = 0; i < list_.n; ++i)
      if (kernel_[i].revents != 0) return woken_ = fresh_ = true;
    return false;
  }

 private:
  struct Entry {
    Watcher watcher;  ///< the first member
    PollCall* call = nullptr;
    Handle target;
    uint32_t at = 0;  ///< index in fds_
  };
  static constexpr size_t kInline = 64;

  static void notify(Watcher& w, ReadyBits happened) noexcept {
    PollCall& c = *reinterpret_cast<Entry&>(w).call;
    if ((happened & (kModeChanged | kFileClosed)) != 0)
      c.relist_.store(true, std::memory_order_relaxed);  // published by hit_
    if (happened == kFileClosed) return c.closed_.store(true, std::memory_order_relaxed);
    c.hit_.store(true, std::memory_order_seq_cst);
    if (EventFd* event = c.event_.load(std::memory_order_seq_cst)) event->signal();
  }

  /// Fills the kernel's list and the engines from the current modes.
  void list_kernel() noexcept {
    relist_.store(false, std::memory_order_relaxed);
    engines.n = 0;
    list_.n = 0;
    list_hash_ = 0;
    fresh_ = false;
    Entry* e = entries_.data();
    Entry* const end = e + count_;
    for (size_t i = 0; i < fds_.size(); ++i) {
      const pollfd& p = fds_[i];
      if (e == end || e->at != i) {
        // Vireo's own descriptors must look closed: -1 would be ignored, this one is invalid.
        add_kernel(is_protected_fd(p.fd) ? INT_MAX : p.fd, p.events, i);
        continue;
      }
      const Handle& h = (e++)->target;
      if (!h.is_alive()) continue;  // closed during the wait; the number may be reused
      if (h->kind.load(std::memory_order_acquire) == FileKind::kEpoll) {
        const LockGuard guard(h->control);
        if (!h.is_alive()) continue;
        h->epoll->collect_engines(engines);
        add_kernel(p.fd, p.events, i);
        add_kernel(h->epoll->hybrid_fd_if_any(), p.events, i);
        continue;
      }
      const Mode m = h->mode.load(std::memory_order_acquire);
      const bool carried = m == Mode::kCarried || m == Mode::kListening;
      listens_ |= m == Mode::kListening;
      if (carried) engines.add(h->engine.load(std::memory_order_acquire));
      // Vireo sends for these.
      constexpr short kOut = POLLOUT | POLLWRNORM | POLLWRBAND;
      if (watches_kernel(*h.file))
        add_kernel(p.fd, carried ? static_cast<short>(p.events & ~kOut) : p.events, i);
    }
    list_.at = kernel_.data();
  }
  void add_kernel(int fd, short events, size_t at) noexcept {
    if (fd < 0) return;
    constexpr uint64_t kPrime = 0x100000001b3;
    list_hash_ =
        (list_hash_ ^ static_cast<uint32_t>(fd) ^ static_cast<uint64_t>(events) << 32) * kPrime;
    kernel_of_[list_.n] = static_cast<uint32_t>(at);
    kernel_[list_.n++] = {fd, events, 0};
  }

  /// @return true: some socket of Vireo's is ready.
  bool look_at_ours() noexcept {
    if (relist_.load(std::memory_order_relaxed)) list_kernel();
    EngineHold hold;
    bool some = false;
    for (size_t i = 0; i < count_; ++i) {
      const Handle& h = entries_[i].target;
      pollfd& p = fds_[entries_[i].at];
      ReadyBits bits = 0;
      if (h->kind.load(std::memory_order_acquire) == FileKind::kEpoll) {
        hold.take(nullptr);  // control locks come before the engine's
        const LockGuard guard(h->control);
        if (h.is_alive() && h->epoll->is_ready(Epoll::name_of(h))) bits = kReadyIn;
      } else {
        bits = ready_under(hold, h, static_cast<uint16_t>(p.events));
        if (!h.is_alive()) [[unlikely]]
          p.revents = POLLNVAL;
      }
      p.revents = static_cast<short>(p.revents | (static_cast<short>(bits) & (p.events | always_)));
      some |= p.revents != 0;
    }
    return some;
  }

  /// @return true: the kernel reports an event.
  Result<bool> look_at_kernel(Instant now) noexcept {
    if (list_.n == 0) return false;
    t_last_look = {list_hash_, now + kBetweenLooks, 0};
    if (!fresh_) {
      if (kernel::poll_now(kernel_.data(), list_.n) < 0) return fail_errno("poll");
    }
    fresh_ = false;
    bool some = false;
    for (nfds_t k = 0; k < list_.n; ++k) {
      if (kernel_[k].revents == 0) continue;
      pollfd& p = fds_[kernel_of_[k]];
      const auto bits = static_cast<short>(kernel_[k].revents & (p.events | always_ | POLLNVAL));
      if (bits == 0) {
        kernel_[k].fd = -1;  // select did not request its hang-up: it would wake us for ever
        continue;
      }
      some = true;
      const Handle h = fd_table().find(p.fd);
      if (h && h->kind.load(std::memory_order_acquire) == FileKind::kEpoll)
        continue;  // is_ready() decides, as Vireo's side may overrule it
      if (h && (bits & POLLIN) != 0) h->kernel_hint.store(true, std::memory_order_relaxed);
      p.revents = static_cast<short>(p.revents | bits);
    }
    return some;
  }

  /// For a call that at once found an event of Vireo's: whether to check the kernel too. The last
  /// look counts only if it was for the same descriptors.
  bool is_kernels_turn(Look how, Instant now) const noexcept {
    if (list_.n == 0) return false;
    const bool is_due = now >= t_last_look.next || t_last_look.of != list_hash_;
    if (how == Look::kTimely) return is_due;
    const auto skip = static_cast<uint32_t>(stack->settings().select_skip_os);
    return skip != 0 && ++t_last_look.calls >= skip && is_due;
  }

  std::span<pollfd> fds_;
  short always_;
  bool watching_ = false;
  bool fresh_ = false;       ///< kernel_ holds the result of a sleep
  bool woken_ = false;       ///< the kernel ended a sleep
  bool listens_ = false;     ///< one is a listener of Vireo's
  bool has_looked_ = false;  ///< harvest() has checked both sides once
  bool was_closed_ = false;
  size_t count_ = 0;  ///< entries in entries_
  std::atomic<bool> hit_{true};
  std::atomic<bool> relist_{false};
  std::atomic<bool> closed_{false};  ///< one was closed during the wait
  std::atomic<EventFd*> event_{nullptr};
  SleepList list_;
  uint64_t list_hash_ = 0;  ///< of list_: descriptors and requested events
  CallArray<Entry, kInline> entries_;
  CallArray<pollfd, kInline + SleepList::kExtra> kernel_;
  CallArray<uint32_t, kInline> kernel_of_;  ///< index in fds_ for each of kernel_
};

constexpr short kPollAlways = POLLERR | POLLHUP;

bool concerns_us(int fd) noexcept {
  const Handle h = fd_table().find(fd);
  if (!h) return false;
  switch (h->mode.load(std::memory_order_acquire)) {
    case Mode::kCarried:
    case Mode::kListening:
    case Mode::kVoid:
      return true;
    // Another thread may bind it during the poll. (A TCP socket in this state reports POLLHUP.)
    case Mode::kUndecided:
      return h->kind.load(std::memory_order_relaxed) == FileKind::kUdp;
    case Mode::kKernel:
      h->stack->promotion().prepare(h);
      return h->kind.load(std::memory_order_relaxed) == FileKind::kEpoll;
  }
  return false;
}

// ---- select's sets, as raw words: a program may have made them larger than an fd_set

constexpr int kWordBits = sizeof(unsigned long) * 8;

unsigned long* words(fd_set* s) { return reinterpret_cast<unsigned long*>(s); }
const unsigned long* words(const fd_set* s) { return reinterpret_cast<const unsigned long*>(s); }
unsigned long word(const fd_set* s, int w) { return s == nullptr ? 0 : words(s)[w]; }

/// Calls f(fd, in, out, pri) for every descriptor in some set, until it returns false.
template <class F>
void for_each_fd(int nfds, const fd_set* read, const fd_set* write, const fd_set* except, F&& f) {
  for (int w = 0; w * kWordBits < nfds; ++w) {
    const unsigned long in = word(read, w);
    const unsigned long out = word(write, w);
    const unsigned long pri = word(except, w);
    for (unsigned long any = in | out | pri; any != 0; any &= any - 1) {
      const int bit = __builtin_ctzl(any);
      const int fd = w * kWordBits + bit;
      if (fd >= nfds) break;
      if (!f(fd, (in >> bit & 1) != 0, (out >> bit & 1) != 0, (pri >> bit & 1) != 0)) return;
    }
  }
}

// fs/select.c: POLLIN_SET, POLLOUT_SET, POLLEX_SET.
constexpr short kInSet = POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR;
constexpr short kOutSet = POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR;
constexpr short kExSet = POLLPRI;
/// And the result for a number closed during the wait.
constexpr short kClosed = POLLNVAL;

}  // namespace

bool concerns_us(std::span<pollfd> fds) noexcept {
  if (fds.empty() || fds.size() > INT_MAX / sizeof(pollfd) ||
      !is_writable_shared(fds.data(), fds.size_bytes()))
    return false;
  for (const pollfd& p : fds)
    if (concerns_us(p.fd)) return true;
  return false;
}

bool concerns_us(int nfds, fd_set* read, fd_set* write, fd_set* except) noexcept {
  nfds = std::min(nfds, fd_table().end());  // sets may be smaller than nfds says, as in Linux
  if (nfds <= 0) return false;
  const size_t bytes = (static_cast<size_t>(nfds) + kWordBits - 1) / kWordBits * sizeof(long);
  for (fd_set* s : {read, write, except})
    if (s != nullptr && !is_writable_shared(s, bytes)) return false;
  bool yes = false;
  for_each_fd(nfds, read, write, except,
              [&](int fd, bool, bool, bool) { return !(yes = concerns_us(fd)); });
  return yes;
}

namespace {

Result<int> poll_once(std::span<pollfd> fds, const timespec* timeout, const sigset_t* mask) {
  PollCall call(fds, kPollAlways);
  if (const auto begun = call.begin(); !begun) return std::unexpected(begun.error());
  auto n = wait_multiplexed(*call.stack, call, timeout, mask);
  if (n && *n == 0)
    for (pollfd& p : fds) p.revents = 0;
  return n;
}

/// As in Linux: after a signal the call checks its numbers once more, even if they are other files
/// by now (dup2), and returns events in preference to EINTR. `n`: the result of the wait;
/// look(timeout): the call without a wait.
template <class F>
Result<int> look_after_signal(const Result<int>& n, F&& look) {
  if (n || n.error().code != EINTR) return n;
  constexpr timespec kNone{};
  if (auto now = look(&kNone); now && *now != 0) return now;
  return n;
}

}  // namespace

Result<int> poll(std::span<pollfd> fds, const timespec* timeout, const sigset_t* mask) {
  return look_after_signal(poll_once(fds, timeout, mask),
                           [&](const timespec* t) { return poll_once(fds, t, nullptr); });
}

namespace {

/// `keeps`: leave the sets unchanged if nothing is ready.
Result<int> select_once(int nfds, fd_set* read, fd_set* write, fd_set* except,
                        const timespec* timeout, const sigset_t* mask, bool keeps) {
  size_t count = 0;
  for_each_fd(nfds, read, write, except, [&](int, bool, bool, bool) { return ++count != 0; });
  CallArray<pollfd, 64> fds;
  if (!fds.resize(count)) return fail(ENOMEM, "select");
  size_t n = 0;
  for_each_fd(nfds, read, write, except, [&](int fd, bool in, bool out, bool pri) {
    fds[n++] = {
        fd, static_cast<short>((in ? kInSet : 0) | (out ? kOutSet : 0) | (pri ? kExSet : 0)), 0};
    return n < count;
  });
  PollCall call({fds.data(), n}, 0);
  if (const auto begun = call.begin(); !begun) return std::unexpected(begun.error());
  const auto ready = wait_multiplexed(*call.stack, call, timeout, mask);
  if (!ready || (keeps && *ready == 0)) return ready;
  if (call.was_closed()) return fail(EBADF, "select");
  int bits = 0;
  size_t at = 0;
  for (int w = 0; w * kWordBits < nfds; ++w) {
    unsigned long in = 0;
    unsigned long out = 0;
    unsigned long pri = 0;
    for (; at < n && fds[at].fd < (w + 1) * kWordBits; ++at) {
      const pollfd& p = fds[at];
      const unsigned long bit = 1UL << (p.fd % kWordBits);
      if (*ready == 0) continue;
      if ((p.revents & (kInSet | kClosed)) != 0) in |= word(read, w) & bit;
      if ((p.revents & (kOutSet | kClosed)) != 0) out |= word(write, w) & bit;
      if ((p.revents & (kExSet | kClosed)) != 0) pri |= word(except, w) & bit;
    }
    if (read != nullptr) words(read)[w] = in;
    if (write != nullptr) words(write)[w] = out;
    if (except != nullptr) words(except)[w] = pri;
    bits += __builtin_popcountl(in) + __builtin_popcountl(out) + __builtin_popcountl(pri);
  }
  return bits;
}

}  // namespace

Result<int> select(int nfds, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
                   const sigset_t* mask) {
  if (nfds < 0) return fail(EINVAL, "select");
  return look_after_signal(
      select_once(nfds, read, write, except, timeout, mask, false),
      [&](const timespec* t) { return select_once(nfds, read, write, except, t, nullptr, true); });
}

}  // namespace vireo::sock
