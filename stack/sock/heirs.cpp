// The owner's side: serves the children's questions, and sends what it closes.
#include "stack/sock/heirs.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "core/fd_messages.h"
#include "core/high_fd.h"
#include "core/log.h"
#include "stack/sock/calls.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"

namespace vireo {
namespace {

using Kind = HeirMessage::Kind;

constexpr Refusal kUsedByChild{Carriage::kInherited, 0, "a child uses it"};

long tell(const UniqueFd& channel, const HeirMessage& m, const UniqueFd& socket) noexcept {
  const int number = socket.get();
  return send_message(channel.get(), std::as_bytes(std::span(&m, 1)),
                      {&number, socket ? size_t{1} : size_t{0}});
}

/// A socket that a child cannot use as it is.
bool is_ours_alone(const File& f, const Stack& stack) noexcept {
  const Mode m = f.mode.load(std::memory_order_relaxed);
  return f.stack == &stack && (m == Mode::kCarried || m == Mode::kListening);
}

}  // namespace

bool await_message(int channel) noexcept {
  constexpr Duration kPatience = Duration::s(5);
  for (const Instant end = Clock::now_from_kernel() + kPatience;;) {
    const int64_t ns = std::max<int64_t>((end - Clock::now_from_kernel()).ns(), 0);
    const timespec left{ns / 1'000'000'000, ns % 1'000'000'000};
    pollfd p{channel, POLLIN, 0};
    if (::syscall(SYS_ppoll, &p, 1, &left, nullptr, size_t{0}) > 0) return true;
    if (errno != EINTR) return false;
  }
}

Result<void> Heirs::open() noexcept {
  const int fd = libc().epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) return fail_errno("epoll_create1");
  epoll_.reset(to_high_number(fd));
  return {};
}

Heirs::Heir* Heirs::find(uint64_t id) noexcept {
  const auto it = std::ranges::find(heirs_, id, &Heir::id);
  return it != heirs_.end() ? &*it : nullptr;
}

void Heirs::add(HeirEnd end) noexcept {
  end.held.memory().reset();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = ++last_id_;
  if (libc().epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, end.channel.get(), &event) != 0) return;
  heirs_.push_back({last_id_, std::move(end)});
  count_.store(static_cast<uint32_t>(heirs_.size()), std::memory_order_relaxed);
}

void Heirs::serve() noexcept {
  epoll_event events[16];
  const int n = kernel::epoll_now(epoll_.get(), events, std::size(events));
  for (int i = 0; i < n; ++i) hear(events[i].data.u64);
}

void Heirs::hear(uint64_t id) noexcept {
  for (;;) {
    HeirMessage m;
    UniqueFd fds[2];
    {
      const LockGuard guard(lock_);
      Heir* const heir = find(id);
      if (heir == nullptr) return;
      const Received got = receive_message(heir->end.channel.get(),
                                           std::as_writable_bytes(std::span(&m, 1)), fds, 0);
      if (got.bytes == -EAGAIN) return;
      if (got.bytes <= 0 && got.bytes != -EMFILE) {  // it has ended, or runs another program
        // Another process may have a copy of the descriptor, and the epoll would keep it.
        (void)libc().epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, heir->end.channel.get(), nullptr);
        heirs_.erase(heirs_.begin() + (heir - heirs_.data()));
        count_.store(static_cast<uint32_t>(heirs_.size()), std::memory_order_relaxed);
        return;
      }
      if (m.kind == Kind::kNewHeir && fds[0] && fds[1]) {
        auto held = HeldFiles::map(std::move(fds[1]));
        if (held) add({to_high_number(std::move(fds[0])), std::move(*held)});
      }
    }
    if (m.kind == Kind::kUse) answer(id, m, fds[0]);
  }
}

void Heirs::answer(uint64_t id, const HeirMessage& asked, const UniqueFd& there) noexcept {
  HeirMessage reply{Kind::kSocket, asked.file, asked.generation, EBADF};
  UniqueFd socket;
  if (const Handle h = fd_table().find_file(asked.file, asked.generation)) {
    const auto done = sock::hand_over(h, kUsedByChild);
    reply.error = done ? 0 : done.error().code;
    if (done && h->is_tcp()) socket = fd_table().dup_of(asked.file, asked.generation);
  }
  const LockGuard guard(lock_);
  const Heir* const heir = find(id);
  if (there)
    (void)tell(there, reply, socket);
  else if (heir != nullptr)
    (void)tell(heir->end.channel, reply, socket);
}

void Heirs::vfork_prepare(const Stack& stack) noexcept {
  const LockGuard guard(lock_);
  if (!epoll_ || vforked_) return;
  bool any = false;
  for (int fd = 0; fd < fd_table().end() && !any; ++fd)
    if (const Handle h = fd_table().find(fd)) any = is_ours_alone(*h.file, stack);
  int ends[2];
  if (!any || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  vforked_.reset(to_high_number(ends[1]));
  vforked_number_.store(vforked_.get(), std::memory_order_relaxed);
  add({UniqueFd(to_high_number(ends[0])), HeldFiles()});
}

/// Without a UniqueFd: these numbers are not the parent's, whose memory this is.
void Heirs::vforked_gives(int fd) noexcept {
  const int channel = vforked_number_.load(std::memory_order_relaxed);
  const Handle h = fd_table().find_parents(fd);
  if (channel < 0 || !h) return;
  const Mode mode = h->mode.load(std::memory_order_acquire);
  int ends[2];
  if ((mode != Mode::kCarried && mode != Mode::kListening) ||
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return;
  HeirMessage m{Kind::kUse, fd_table().index_of(*h.file), h.generation, 0};
  const auto bytes = std::as_writable_bytes(std::span(&m, 1));
  int made = -1;
  if (send_message(channel, bytes, {&ends[1], 1}) == 0 && await_message(ends[0]))
    (void)receive_numbers(ends[0], bytes, {&made, 1}, 0);
  if (made >= 0) {
    replace_shadow(fd, made);
    kernel::close(made);
  }
  for (const int end : ends) kernel::close(end);
}

bool Heirs::is_held(const Handle& h) noexcept {
  const uint32_t file = fd_table().index_of(*h.file);
  const LockGuard guard(lock_);
  return std::ranges::any_of(
      heirs_, [&](const Heir& heir) { return heir.end.held.holds(file, h.generation); });
}

/// A datagram socket is the same open file in the child, a connection is not.
void Heirs::leave_one(const Handle& h) noexcept {
  const uint32_t file = fd_table().index_of(*h.file);
  const auto done = sock::hand_over(h, kUsedByChild);
  if (done && !h->is_tcp()) return;
  const UniqueFd socket = done ? fd_table().dup_of(file, h.generation) : UniqueFd();
  if (!socket) {
    log<LogLevel::kDebug>("descriptor {}: closed, though a child has the connection too ({})", h.fd,
                          done ? "no descriptor" : done.error().where);
    return;
  }
  const HeirMessage m{Kind::kSocket, file, h.generation, 0};
  const LockGuard guard(lock_);
  for (Heir& heir : heirs_)
    if (heir.end.held.mark_sent(file, h.generation) && tell(heir.end.channel, m, socket) < 0)
      heir.end.held.unmark_sent(file, h.generation);
}

void Heirs::leave_if_held(Handle h) noexcept {
  if (h->is_carried() && fd_table().count_names(*h.file) == 1 && is_held(h)) leave_one(h);
}

void Heirs::leave_all(const Stack& stack) noexcept {
  if (count_.load(std::memory_order_relaxed) == 0) return;
  for (int fd = 0; fd < fd_table().end(); ++fd)
    if (const Handle h = fd_table().find(fd);
        h && h->stack == &stack && h->is_carried() && is_held(h))
      leave_one(h);
}

void Heirs::fork_prepare(const Stack& stack) noexcept {
  lock_.lock();
  if (!epoll_) return;
  bool any = false;
  fd_table().for_each_file([&](const File& f) { any |= is_ours_alone(f, stack); });
  int ends[2];
  if (!any || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  UniqueFd ours(to_high_number(ends[0]));
  UniqueFd its(to_high_number(ends[1]));
  auto held = HeldFiles::make(fd_table().files_end());
  if (!held) return;
  held->memory().reset();
  fd_table().for_each_file([&](const File& f) {
    if (is_ours_alone(f, stack))
      held->hold(fd_table().index_of(f), f.generation.load(std::memory_order_relaxed));
  });
  next_.emplace(std::move(ours), std::move(its), std::move(*held));
}

void Heirs::fork_parent() noexcept {
  if (next_) add({std::move(next_->ours), std::move(next_->held)});
  next_.reset();
  lock_.unlock();
}

std::optional<HeirEnd> Heirs::fork_child() noexcept {
  lock_.reset_after_fork();
  for (Heir& heir : heirs_) (void)heir.end.channel.release();
  heirs_.clear();
  count_.store(0, std::memory_order_relaxed);
  (void)epoll_.release();
  (void)vforked_.release();
  vforked_number_.store(-1, std::memory_order_relaxed);
  if (!next_) return std::nullopt;
  (void)next_->ours.release();
  HeirEnd end{std::move(next_->its), std::move(next_->held)};
  next_.reset();
  return end;
}

}  // namespace vireo
