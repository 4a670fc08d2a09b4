// epoll_create(2), epoll_ctl(2), epoll_wait(2).
#include <algorithm>
#include <climits>
#include <new>
#include <optional>

#include "core/user_memory.h"
#include "stack/sock/blocking.h"
#include "stack/sock/epoll.h"
#include "stack/sock/inherited_listener.h"
#include "stack/sock/inspection.h"
#include "stack/sock/multiplex.h"
#include "stack/sock/multiplex_wait.h"

namespace vireo::sock {
namespace {

/// For epoll_pwait(2).
int milliseconds(const timespec* timeout) noexcept {
  if (timeout == nullptr) return -1;
  if (timeout->tv_sec >= INT_MAX / 1000) return INT_MAX;
  return static_cast<int>(timeout->tv_sec * 1000 + timeout->tv_nsec / 1'000'000);
}
/// The kernel's call can say `timeout`; not if that is invalid.
bool is_whole(const timespec* timeout) noexcept {
  return timeout == nullptr ||
         (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1'000'000'000 &&
          timeout->tv_nsec % 1'000'000 == 0);
}

/// A wait on one epoll.
class EpollCall {
 public:
  EpollCall(Handle h, std::span<epoll_event> out) noexcept : h_(h), out_(out) {}
  EpollCall(const EpollCall&) = delete;
  EpollCall& operator=(const EpollCall&) = delete;

  EngineSet engines;

  /// Before the wait. Errors: EBADF.
  Result<void> begin(const timespec* timeout) noexcept {
    const LockGuard guard(h_->control);
    if (!h_.is_alive()) return fail(EBADF, "epoll_wait");
    pin_.pin(*h_.file);
    h_->epoll->use_inherited();
    refresh();
    is_alone_ = engines.n == 0 && is_whole(timeout) && h_->epoll->arm_alone(fd_);
    return {};
  }
  bool is_alone() const noexcept { return is_alone_; }
  /// is_alone(): the kernel's own call. @return how many events; nullopt: another thread has
  /// changed something, wait as for any other. Errors: those of epoll_pwait(2).
  Result<std::optional<int>> wait_alone(int ms, const sigset_t* mask) noexcept {
    const SignalMark signals;
    const int most = static_cast<int>(out_.size());
    int n = -1;
    errno = EINTR;
    {
      const KernelWait wait;
      if (!signals.pending())
        n = cancelable([&] { return libc().epoll_pwait(fd_, out_.data(), most, ms, mask); });
    }
    const int error = errno;
    h_->epoll->disarm_alone();
    if (n < 0) return fail(error, "epoll_wait");
    const auto left = static_cast<int>(h_->epoll->without_wake(out_.first(static_cast<size_t>(n))));
    if (left == 0 && n != 0) return std::nullopt;
    return left;
  }
  bool poll(Instant now, size_t& taken) noexcept {
    if (engines.n != 1) return poll_all(engines, now);
    return h_->epoll->poll_and_take(*engines.at[0], out_, now, taken);
  }
  bool listens() const noexcept { return h_->epoll->listens(); }
  bool pending() const noexcept { return is_doubtful_ || h_->epoll->pending(); }
  /// A callback may let some datagram be received. Else the next turn of the wait shows it.
  int at_end() noexcept { return t_interrupts.has_unshown ? show_and_harvest() : 0; }
  Result<int> harvest(Look look, Instant now) noexcept {
    const LockGuard guard(h_->control);
    auto n = h_->epoll->harvest(fd_, out_, look, now);
    if (!n || *n != 0) return n;
    if (!is_writable(out_.data())) [[unlikely]]
      n = judge_place();
    if (n && *n == 0) refresh();  // the call will wait
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
  bool arm(EventFd& event) noexcept {
    return !is_doubtful_ && !t_interrupts.has_unshown && h_->epoll->arm(sleeper_, event);
  }
  void disarm() noexcept { h_->epoll->disarm(sleeper_); }
  bool woken_by_kernel() const noexcept {
    for (nfds_t i = 0; i < list_.n; ++i)
      if (fds_[i].revents != 0) return true;
    return false;
  }
  void end() noexcept { h_->epoll->pass_on(); }

 private:
  [[gnu::cold, gnu::noinline]] int show_and_harvest() noexcept {
    if (!inspection::show_all()) return 0;
    const LockGuard guard(h_->control);
    return h_->epoll->harvest(fd_, out_, Look::kBoth, Clock::now()).value_or(0);
  }
  /// The program's event array is not writable. As in Linux this matters once there is an event,
  /// except that the kernel rejects an address outside user space at once.
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
    fd_ = Epoll::name_of(h_);  // if another thread closed the number: waits on
  }

  Handle h_;
  std::span<epoll_event> out_;
  FilePin pin_;
  Epoll::Sleeper sleeper_;
  bool is_alone_ = false;
  bool is_doubtful_ = false;  ///< judge_place() is still to be called
  int hybrid_ = -1;
  int fd_ = -1;
  SleepList list_;
  pollfd fds_[2 + SleepList::kExtra];
};

/// EpollCall::wait_alone(), and what is `left` of the timeout if that returns nullopt. Not inline:
/// a wait for carried sockets pays for none of it.
[[gnu::noinline]] Result<std::optional<int>> wait_alone(EpollCall& call, const timespec* timeout,
                                                        timespec& left,
                                                        const sigset_t* mask) noexcept {
  const auto deadline = deadline_of(timeout, Clock::now());  // valid: is_whole()
  const auto n = call.wait_alone(milliseconds(timeout), mask);
  if (timeout != nullptr) {
    const int64_t ns = std::max<int64_t>(0, (*deadline - Clock::now()).ns());
    left = {ns / 1'000'000'000, ns % 1'000'000'000};
  }
  return n;
}

}  // namespace

Result<int> epoll_create(Stack& stack, int flags) {
  const int fd = libc().epoll_create1(flags);
  if (fd < 0) return fail_errno("epoll_create1");
  if (!stack.is_owner()) return fd;
  // No memory or no room in the table: the kernel's epoll then serves the kernel's sockets.
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
  forget(fd);  // the number was closed by a call that Vireo did not see
  if (!fd_table().install(fd, f)) {
    free_epoll(f);
    fd_table().free(f);
  }
  return fd;
}

Result<void> epoll_ctl(Handle epoll, int op, int fd, const epoll_event* event) {
  if (op != EPOLL_CTL_DEL && !is_readable(event)) return fail(EFAULT, "epoll_ctl");
  if (epoll->kind.load(std::memory_order_acquire) != FileKind::kEpoll || is_protected_fd(fd)) {
    // For the kernel's errno.
    if (is_protected_fd(fd)) fd = -1;
    if (libc().epoll_ctl(epoll.fd, op, fd, const_cast<epoll_event*>(event)) != 0)
      return fail_errno("epoll_ctl");
    return {};
  }
  if (op == EPOLL_CTL_ADD) {
    Handle h = fd_table().find(fd);
    if (!h && is_listener(fd)) h = adopt_listener(*epoll->stack, fd);
    if (h) h->stack->promotion().prepare(h);
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
  if (const auto begun = call.begin(timeout); !begun) return std::unexpected(begun.error());
  timespec left;
  if (call.is_alone()) [[unlikely]] {
    const auto n = wait_alone(call, timeout, left, mask);
    if (!n || *n) {
      call.end();
      return n ? Result<int>(**n) : std::unexpected(n.error());
    }
    if (timeout != nullptr) timeout = &left;
  }
  const auto n = wait_multiplexed(*epoll->stack, call, timeout, mask);
  call.end();
  return n;
}

}  // namespace vireo::sock
