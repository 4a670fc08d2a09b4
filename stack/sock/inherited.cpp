// The child's side: asks the owner, and puts what it sends in the place of the void socket.
#include "stack/sock/inherited.h"

#include <sys/socket.h>

#include <algorithm>
#include <span>

#include "core/fd_messages.h"
#include "core/high_fd.h"
#include "stack/sock/carriage.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/listener.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo {
namespace {

using Kind = HeirMessage::Kind;

constexpr Refusal kParents{Carriage::kInherited, 0, "its parent's"};

}  // namespace

HeirEnd* Inherited::owner_of(uint32_t file) noexcept {
  const auto it =
      std::ranges::find_if(owners_, [&](const HeirEnd& o) { return o.held.holds(file); });
  return it != owners_.end() ? &*it : nullptr;
}

Inherited::Answer Inherited::hear(HeirEnd& owner, uint32_t file, uint32_t generation) noexcept {
  if (const auto it = std::ranges::find(sent_, file, &Socket::file); it != sent_.end()) {
    Answer found{0, std::move(it->fd)};
    sent_.erase(it);
    return found;
  }
  bool was_reset = false;
  while (await_message(owner.channel.get(), owner.is_silent ? Duration() : kPatience)) {
    owner.is_silent = false;
    HeirMessage m;
    UniqueFd fds[1];
    const Received got =
        receive_message(owner.channel.get(), std::as_writable_bytes(std::span(&m, 1)), fds, 0);
    if (got.bytes == -EAGAIN) continue;
    // An end with questions unread is reported once, before what it had sent.
    if (got.bytes == -ECONNRESET && !std::exchange(was_reset, true)) continue;
    if (got.bytes == -EMFILE) {  // it can be asked for again
      owner.held.unmark_sent(m.file, m.generation);
      if (m.file == file) return {EMFILE, {}};
      continue;
    }
    if (got.bytes <= 0) return {};
    if (m.file == file && m.generation == generation) return {m.error, std::move(fds[0])};
    // Of another File: it may be closed here by now, or asked for by a call that gave up.
    if (fds[0] && owner.held.is_sent(m.file))
      sent_.push_back({m.file, m.generation, to_high_number(std::move(fds[0]))});
  }
  owner.is_silent = true;
  return {};
}

Inherited::Answer Inherited::fetch(const File& f, uint32_t generation) noexcept {
  const uint32_t file = fd_table().index_of(f);
  HeirEnd* const owner = owner_of(file);
  if (owner == nullptr) return {};
  if (!owner->held.is_sent(file)) {
    const HeirMessage ask{Kind::kUse, file, generation, 0, 0};
    (void)send_message(owner->channel.get(), std::as_bytes(std::span(&ask, 1)), {});
  }
  Answer answer = hear(*owner, file, generation);
  if (answer.error == 0) (void)owner->held.drop(file);
  return answer;
}

Result<void> Inherited::take(Handle h, const char* call) noexcept {
  File& f = *h.file;
  {
    const LockGuard control(f.control);
    if (!h.is_alive()) return fail(EBADF, call);
    if (f.mode.load(std::memory_order_relaxed) != Mode::kVoid) return {};
    const bool is_connection = f.is_tcp() && f.tcp.link != Link::kUnconnected;
    // Until the end, for a fork meanwhile: its child must find the socket on one side.
    const LockGuard guard(lock_);
    const Answer answer = fetch(f, h.generation);
    // Any other is this process's too, once its owner does not receive for it.
    if (is_connection && (answer.error != 0 || !answer.fd)) return fail(ENOTCONN, call);
    if (answer.fd) replace_shadows(f, answer.fd.get());
    // Its owner takes it away, unless that was killed.
    if (f.is_udp() && answer.error != 0) udp_socket::hear_unfiltered(f, h.fd);
    if (is_connection)
      f.tcp.link = Link::kConnected;
    else if (f.is_tcp() && (answer.error == 0 || answer.error == EBADF))
      listener::restore_blocking(f, h.fd);  // its owner may have closed it since
    f.tcp.port = PortOrigin::kProgram;
    f.placeholder = false;
    f.forced = {kParents.why};
    record_kernel(f, kParents);
    // Pairs with the acquire of a call that goes to the kernel: the descriptors are replaced.
    f.mode.store(Mode::kKernel, std::memory_order_release);
  }
  f.ready.notify(kModeChanged | kReadyIn | kReadyOut);
  return {};
}

void Inherited::drop(const File& f) noexcept {
  if (!any_.load(std::memory_order_relaxed)) return;
  const uint32_t file = fd_table().index_of(f);
  const LockGuard guard(lock_);
  HeirEnd* const owner = owner_of(file);
  // What is sent must be received, or the connection would not end.
  if (owner != nullptr && owner->held.drop(file))
    (void)hear(*owner, file, f.generation.load(std::memory_order_relaxed));
}

bool Inherited::is_closed_by_parent(const File& f) noexcept {
  const LockGuard guard(lock_);
  // The parent's own channel is the last.
  return !owners_.empty() && owners_.back().held.is_closed_by_owner(fd_table().index_of(f));
}

void Inherited::take_sent() noexcept {
  if (!any_.load(std::memory_order_relaxed)) return;
  for (int fd = 0; fd < fd_table().end(); ++fd) {
    const Handle h = fd_table().find(fd);
    if (!h || h->mode.load(std::memory_order_acquire) != Mode::kVoid) continue;
    bool is_sent = false;
    {
      const LockGuard guard(lock_);
      const uint32_t file = fd_table().index_of(*h.file);
      const HeirEnd* const owner = owner_of(file);
      is_sent = owner != nullptr && owner->held.is_sent(file);
    }
    if (is_sent) (void)take(h, "fork");
  }
}

void Inherited::fork_prepare() noexcept {
  const auto has_sent = [this]() VIREO_NO_THREAD_ANALYSIS {
    for (const HeirEnd& owner : owners_)
      for (uint32_t file = 0; file < owner.held.end(); ++file)
        if (owner.held.is_sent(file)) return true;
    return false;
  };
  for (int tries = 0;; ++tries) {
    take_sent();
    lock_.lock();
    if (tries == 10 || !has_sent()) break;
    lock_.unlock();
  }
  for (HeirEnd& owner : owners_) {
    auto held = HeldFiles::make(fd_table().files_end());
    int ends[2];
    if (!held || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) continue;
    const UniqueFd owners(ends[0]);
    UniqueFd its(to_high_number(ends[1]));
    fd_table().for_each_file([&](const File& f) {
      const uint32_t file = fd_table().index_of(f);
      const uint32_t generation = f.generation.load(std::memory_order_relaxed);
      if (f.mode.load(std::memory_order_relaxed) == Mode::kVoid &&
          owner.held.holds(file, generation))
        held->hold(file, generation);
    });
    const HeirMessage m{Kind::kNewHeir, 0, 0, 0, 0};
    const int fds[] = {owners.get(), held->memory().get()};
    if (send_message(owner.channel.get(), std::as_bytes(std::span(&m, 1)), fds) < 0) continue;
    held->memory().reset();
    next_.push_back({std::move(its), std::move(*held)});
  }
}

void Inherited::fork_parent() noexcept {
  next_.clear();
  lock_.unlock();
}

void Inherited::keep_fds(std::optional<HeirEnd>& parents) noexcept {
  lock_.reset_after_fork();
  const auto keep = [](HeirEnd& e) { remove_own_fd(e.channel.get()); };
  for (HeirEnd& e : next_) keep(e);
  if (parents) keep(*parents);
}

void Inherited::fork_child(std::optional<HeirEnd> parents) noexcept {
  for (HeirEnd& e : owners_) (void)e.channel.release();
  for (Socket& s : sent_) (void)s.fd.release();
  sent_.clear();
  owners_ = std::move(next_);
  next_.clear();
  if (parents) owners_.push_back(std::move(*parents));
  for (HeirEnd& e : owners_) add_own_fd(e.channel.get());
  any_.store(!owners_.empty(), std::memory_order_relaxed);
}

}  // namespace vireo
