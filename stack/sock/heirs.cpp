// The owner's side: serves the children's questions, and sends what it closes.
#include "stack/sock/heirs.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
#include "stack/sock/udp_socket.h"

namespace vireo {
namespace {

using Kind = HeirMessage::Kind;

constexpr Refusal kUsedByChild{Carriage::kInherited, 0, "a child uses it"};

long tell(const UniqueFd& channel, const HeirMessage& m, const UniqueFd& socket) noexcept {
  const int number = socket.get();
  return send_message(channel.get(), std::as_bytes(std::span(&m, 1)),
                      {&number, socket ? size_t{1} : size_t{0}});
}

uint64_t inode_of(int fd) noexcept {
  struct stat s{};
  return ::fstat(fd, &s) == 0 ? s.st_ino ^ uint64_t { s.st_dev } << 48 : 0;
}

/// A socket that a child cannot use as it is.
bool is_ours_alone(const File& f, const Stack& stack) noexcept {
  const Mode m = f.mode.load(std::memory_order_relaxed);
  return f.stack == &stack && (m == Mode::kCarried || m == Mode::kListening);
}

/// A connection of the kernel's that a child may carry, once this process has closed it.
bool may_be_a_childs(const File& f, const Stack& stack) noexcept {
  return f.stack == &stack && f.is_tcp() &&
         f.mode.load(std::memory_order_relaxed) == Mode::kKernel &&
         f.receives_left.load(std::memory_order_relaxed) != 0 &&
         f.holders.load(std::memory_order_relaxed) == Holders::kUs;
}

}  // namespace

bool await_message(int channel, Duration patience) noexcept {
  for (const Instant end = Clock::now_from_kernel() + patience;;) {
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

bool Heirs::add(HeirEnd end, Lent lent) noexcept {
  end.held.memory().reset();
  // What is sent unasked waits there.
  constexpr int kRoom = 4 << 20;
  (void)libc().setsockopt(end.channel.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kRoom, sizeof kRoom);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = ++last_id_;
  if (libc().epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, end.channel.get(), &event) != 0) return false;
  heirs_.push_back({last_id_, std::move(end), std::move(lent), {}});
  count_.store(static_cast<uint32_t>(heirs_.size()), std::memory_order_relaxed);
  return true;
}

void Heirs::add_heir_of(const Heir& parent, UniqueFd channel, UniqueFd memory) noexcept {
  auto held = HeldFiles::map(std::move(memory));
  if (!held) return;
  Lent lent = parent.lent;  // add() may move the parent
  auto udp_ports = parent.udp_ports;
  lent.resize(std::min<size_t>(lent.size(), held->end()));
  for (uint32_t file = 0; file < lent.size(); ++file)
    if (!held->holds(file, lent[file])) lent[file] = 0;
  if (add({to_high_number(std::move(channel)), std::move(*held)}, std::move(lent)))
    heirs_.back().udp_ports = std::move(udp_ports);
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
    bool is_vforked = false;
    {
      const LockGuard guard(lock_);
      Heir* const heir = find(id);
      if (heir == nullptr) return;
      is_vforked = heir->lent.empty();
      const Received got = receive_message(heir->end.channel.get(),
                                           std::as_writable_bytes(std::span(&m, 1)), fds, 0);
      if (got.bytes == -EAGAIN) return;
      if (got.bytes == -EMFILE) continue;
      if (got.bytes <= 0) {  // it has ended, or runs another program
        // Another process may have a copy of the descriptor, and the epoll would keep it.
        (void)libc().epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, heir->end.channel.get(), nullptr);
        heirs_.erase(heirs_.begin() + (heir - heirs_.data()));
        count_.store(static_cast<uint32_t>(heirs_.size()), std::memory_order_relaxed);
        return;
      }
      if (m.kind == Kind::kNewHeir && fds[0] && fds[1])
        add_heir_of(*heir, std::move(fds[0]), std::move(fds[1]));
    }
    if (m.kind != Kind::kUse) continue;
    if (!is_vforked)
      answer(id, m);
    else if (fds[0])
      answer_vforked(m, fds[0]);
  }
}

/// A connection is sent once, also if it is asked for twice or closed meanwhile: what the child
/// does not expect it does not receive, and the connection would not end.
void Heirs::answer(uint64_t id, const HeirMessage& asked) noexcept {
  const uint32_t file = asked.file;
  {
    const LockGuard guard(lock_);
    const Heir* const heir = find(id);
    if (heir == nullptr || file >= heir->lent.size() || heir->lent[file] == 0 ||
        heir->lent[file] != asked.generation)
      return;
  }
  HeirMessage reply{Kind::kSocket, file, asked.generation, EBADF, 0};
  UniqueFd socket;
  bool is_stream = false;
  if (const Handle h = fd_table().find_file(file, asked.generation)) {
    note_udp_port(h);
    const auto done = sock::hand_over(h, kUsedByChild);
    reply.error = done ? 0 : done.error().code;
    is_stream = h->is_tcp();
    if (done && is_stream) socket = fd_table().dup_of(file, asked.generation);
    if (done && is_stream && !socket) reply.error = EMFILE;
  }
  const LockGuard guard(lock_);
  Heir* const heir = find(id);
  if (heir == nullptr) return;
  if (socket && !heir->end.held.mark_sent(file, asked.generation)) return;
  if (tell(heir->end.channel, reply, socket) < 0 && socket)
    heir->end.held.unmark_sent(file, asked.generation);
}

/// It asks for a number, which may be another file in the child by now.
void Heirs::answer_vforked(const HeirMessage& asked, const UniqueFd& there) noexcept {
  HeirMessage reply{Kind::kSocket, asked.file, asked.generation, EBADF, 0};
  UniqueFd socket;
  const Handle h = fd_table().find_file(asked.file, asked.generation);
  if (h && inode_of(h.fd) == asked.inode) {
    h->holders.store(Holders::kUnknown, std::memory_order_relaxed);
    const auto done = sock::hand_over(h, kUsedByChild);
    reply.error = done ? 0 : done.error().code;
    if (done && h->is_tcp()) socket = fd_table().dup_of(asked.file, asked.generation);
  }
  (void)tell(there, reply, socket);
}

void Heirs::vfork_prepare(const Stack& stack) noexcept {
  const LockGuard guard(lock_);
  if (!epoll_ || vforked_) return;
  bool any = false;
  for (int fd = 0; fd < fd_table().end() && !any; ++fd)
    if (const Handle h = fd_table().find(fd)) any = is_ours_alone(*h.file, stack);
  int ends[2];
  if (!any || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  UniqueFd its(to_high_number(ends[1]));
  if (!add({UniqueFd(to_high_number(ends[0])), HeldFiles()}, {})) return;
  vforked_ = std::move(its);
  vforked_number_.store(vforked_.get(), std::memory_order_relaxed);
}

/// Without a UniqueFd: these numbers are not the parent's, whose memory this is.
void Heirs::vforked_gives(int fd) noexcept {
  const int channel = vforked_number_.load(std::memory_order_relaxed);
  const Handle h = fd_table().find_parents(fd);
  if (!h) return;
  h->holders.store(Holders::kUnknown, std::memory_order_relaxed);
  if (channel < 0) return;
  const Mode mode = h->mode.load(std::memory_order_acquire);
  int ends[2];
  if ((mode != Mode::kCarried && mode != Mode::kListening) ||
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return;
  HeirMessage m{Kind::kUse, fd_table().index_of(*h.file), h.generation, 0, inode_of(fd)};
  const auto bytes = std::as_writable_bytes(std::span(&m, 1));
  int made = -1;
  if (send_message(channel, bytes, {&ends[1], 1}) == 0 && await_message(ends[0], kPatience))
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

void Heirs::note_udp_port(const Handle& h) noexcept {
  if (!h->is_udp()) return;
  uint16_t port = 0;
  {
    const LockGuard control(h->control);
    port = h->udp->local.port;
  }
  const uint32_t file = fd_table().index_of(*h.file);
  const LockGuard guard(lock_);
  for (Heir& heir : heirs_)
    if (heir.end.held.holds(file, h.generation)) heir.udp_ports.push_back(port);
}

bool Heirs::has_udp_port(uint16_t port) noexcept {
  if (count_.load(std::memory_order_relaxed) == 0) return false;
  const LockGuard guard(lock_);
  return std::ranges::any_of(heirs_, [&](const Heir& heir) {
    return std::ranges::find(heir.udp_ports, port) != heir.udp_ports.end();
  });
}

/// A datagram socket is the same open file in the child, a connection is not.
void Heirs::leave_one(const Handle& h) noexcept {
  const uint32_t file = fd_table().index_of(*h.file);
  note_udp_port(h);
  const auto done = sock::hand_over(h, kUsedByChild);
  if (done && !h->is_tcp()) return;
  const UniqueFd socket = done ? fd_table().dup_of(file, h.generation) : UniqueFd();
  if (!socket) {
    log<LogLevel::kDebug>("descriptor {}: closed, though a child has the connection too ({})", h.fd,
                          done ? "no descriptor" : done.error().where);
    return;
  }
  const HeirMessage m{Kind::kSocket, file, h.generation, 0, 0};
  const LockGuard guard(lock_);
  for (Heir& heir : heirs_)
    if (heir.end.held.mark_sent(file, h.generation) && tell(heir.end.channel, m, socket) < 0)
      heir.end.held.unmark_sent(file, h.generation);
}

void Heirs::leave_if_held(Handle h) noexcept {
  if (!h->is_carried() || !is_held(h) || fd_table().count_names(*h.file) != 1) return;
  serve();  // a holder may have had a child, and have ended
  if (h->is_carried() && is_held(h)) leave_one(h);
}

void Heirs::leave_all(const Stack& stack) noexcept {
  if (count_.load(std::memory_order_relaxed) == 0) return;
  serve();
  for (int fd = 0; fd < fd_table().end(); ++fd)
    if (const Handle h = fd_table().find(fd);
        h && h->stack == &stack && h->is_carried() && is_held(h))
      leave_one(h);
}

void Heirs::closed(const File& f) noexcept {
  const uint32_t file = fd_table().index_of(f);
  const uint32_t generation = f.generation.load(std::memory_order_relaxed);
  const LockGuard guard(lock_);
  // Mostly it is the child of the last fork.
  for (auto heir = heirs_.rbegin(); heir != heirs_.rend(); ++heir) {
    if (!heir->end.held.tells_of(file, generation)) continue;
    heir->end.held.closed_by_owner(file);
    return;
  }
}

/// The next child gets the File. Of a second one the first is told nothing more.
void Heirs::share(File& f) noexcept {
  const bool is_told = next_ && f.holders.load(std::memory_order_relaxed) == Holders::kUs &&
                       f.tcp.link == Link::kConnected;
  f.holders.store(is_told ? Holders::kChild : Holders::kUnknown, std::memory_order_relaxed);
  if (is_told)
    next_->held.tell_of(fd_table().index_of(f), f.generation.load(std::memory_order_relaxed));
}

void Heirs::fork_prepare(const Stack& stack) noexcept {
  lock_.lock();
  prepare_next(stack);
  fd_table().for_each_file([&](File& f) VIREO_NO_THREAD_ANALYSIS {
    if (f.stack == &stack && f.is_tcp()) share(f);
  });
}

void Heirs::prepare_next(const Stack& stack) noexcept {
  if (!epoll_) return;
  bool any = false;
  fd_table().for_each_file(
      [&](const File& f) { any |= is_ours_alone(f, stack) || may_be_a_childs(f, stack); });
  int ends[2];
  if (!any || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  UniqueFd ours(to_high_number(ends[0]));
  UniqueFd its(to_high_number(ends[1]));
  auto held = HeldFiles::make(fd_table().files_end());
  if (!held) return;
  held->memory().reset();
  Lent lent(held->end());
  fd_table().for_each_file([&](const File& f) {
    if (!is_ours_alone(f, stack)) return;
    const uint32_t file = fd_table().index_of(f);
    lent[file] = f.generation.load(std::memory_order_relaxed);
    held->hold(file, lent[file]);
  });
  next_.emplace(std::move(ours), std::move(its), std::move(*held), std::move(lent));
}

void Heirs::fork_parent() noexcept {
  if (next_) (void)add({std::move(next_->ours), std::move(next_->held)}, std::move(next_->lent));
  next_.reset();
  lock_.unlock();
}

std::optional<HeirEnd> Heirs::fork_child() noexcept {
  lock_.reset_after_fork();
  heirs_.clear();
  count_.store(0, std::memory_order_relaxed);
  epoll_.reset();
  vforked_.reset();
  vforked_number_.store(-1, std::memory_order_relaxed);
  if (!next_) return std::nullopt;
  HeirEnd end{std::move(next_->its), std::move(next_->held)};
  next_.reset();
  return end;
}

}  // namespace vireo
