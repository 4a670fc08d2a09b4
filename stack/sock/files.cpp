// Files and their descriptors: socket, dup, close.
#include "stack/sock/files.h"

#include <new>

#include "core/yield_point.h"
#include "stack/sock/calls.h"
#include "stack/sock/epoll.h"
#include "stack/sock/extra_state.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/options/options.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/served_by.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/thread_choice.h"
#include "stack/sock/udp_socket.h"
#include "stack/sock/unless_busy.h"
#include "stack/sock/uring.h"

namespace vireo {
namespace {

uint8_t proto_of(FileKind k) { return k == FileKind::kTcp ? IPPROTO_TCP : IPPROTO_UDP; }

/// The last reference to the File of that generation is gone: closes the flow, frees everything.
void close_file(File& f, uint32_t generation, UniqueFd port_holder) VIREO_NO_THREAD_ANALYSIS {
  yield_point();
  {
    const LockGuard control(f.control);
    Engine* e = f.engine.load(std::memory_order_acquire);
    if (e != nullptr) e->acquire();
    // A call that found the File before its number was removed may have pinned it since. Then that
    // call closes it, or has already, and the File may have been opened again.
    const bool gone = f.refs.load(std::memory_order_relaxed) != 0 ||
                      f.generation.load(std::memory_order_relaxed) != generation;
    if (!gone) {
      if (f.is_tcp() && f.tcp.is_workers) f.stack->family().worker.closed();
      if (f.mode.load(std::memory_order_relaxed) == Mode::kVoid)
        f.stack->family().inherited.drop(f);
      if (f.holders.load(std::memory_order_relaxed) == Holders::kChild)
        f.stack->family().heirs.closed(f);
      if (e != nullptr && f.extra != nullptr) [[unlikely]]
        drop_extra(f);
      // Pairs with the acquire in Handle::is_alive().
      f.generation.fetch_add(1, std::memory_order_release);
      if (f.flow != nullptr) {
        switch (f.flow->kind) {
          case FlowKind::kTcp: {
            const bool reset =
                f.tcp.options->socket.linger_on != 0 && f.tcp.options->socket.linger_s == 0;
            e->tcp().close(f.tcp_flow(), std::move(port_holder), reset, Clock::now());
            break;
          }
          case FlowKind::kListener:
            e->listeners().close(f.listener(), Clock::now());
            break;
          case FlowKind::kUdp:
            e->udp().close(f.udp_flow());
            break;
          case FlowKind::kTimeWait:
            break;
        }
        f.flow = nullptr;
      }
    }
    if (e != nullptr) e->unlock();
    if (gone) return;
  }
  yield_point();
  f.ready.dismiss();
  free_sockets(f);
  fd_table().free(f);
}

/// Drops a reference; if it was the last, fn(generation) closes the File.
template <class F>
[[gnu::always_inline]] inline void end_reference(File& f, F&& fn) {
  // Constant while the reference is held.
  const uint32_t generation = f.generation.load(std::memory_order_relaxed);
  // acq_rel: other holders' writes to the File happen before its close.
  if (f.refs.fetch_sub(1, std::memory_order_acq_rel) == 1) fn(generation);
}

}  // namespace

void free_sockets(File& f) {
  if (f.place.load(std::memory_order_relaxed) != 0) f.touch();
  if (f.is_udp()) {
    udp_socket::end_watch(f);
    *f.udp = UdpSocket{};
  }
  if (f.is_tcp()) f.tcp.reset();
  if (SendReports* const r = fd_table().reports_of(f); r != nullptr) r->reset();
  // The pointer stays valid: a call that slept in the kernel counts itself when it wakes.
  if (f.stats != nullptr) f.stack->counters().put(*f.stats);
  if (f.is_epoll())
    free_epoll(f);
  else
    free_extra(f);
  f.engine.store(nullptr, std::memory_order_relaxed);
}

Result<File*> open_file(Stack& stack, FileKind kind, int domain, int fd) {
  auto made = fd_table().allocate();
  if (!made) return made;
  File& f = **made;
  if (kind == FileKind::kUdp && f.udp == nullptr) f.udp = new (std::nothrow) UdpSocket;
  if (kind == FileKind::kUdp && f.udp == nullptr) {
    fd_table().free(f);
    return fail(ENOMEM, "socket");
  }
  f.stack = &stack;
  f.flow = nullptr;
  f.placeholder = false;
  f.forced = {};
  f.engine.store(nullptr, std::memory_order_relaxed);
  f.mode.store(Mode::kUndecided, std::memory_order_relaxed);
  f.nonblock.store(false, std::memory_order_relaxed);
  f.touch();
  f.receives_left.store(0, std::memory_order_relaxed);
  f.holders.store(Holders::kUs, std::memory_order_relaxed);
  f.rcv_timeout_ns.store(0, std::memory_order_relaxed);
  f.snd_timeout_ns.store(0, std::memory_order_relaxed);
  f.domain.store(static_cast<uint8_t>(domain), std::memory_order_relaxed);
  f.stats = &stack.counters().take(proto_of(kind), domain, fd);
  f.kind.store(kind, std::memory_order_release);
  yield_point();
  return &f;
}

void release_file(File& f, UniqueFd port_holder) {
  end_reference(f, [&](uint32_t generation) { close_file(f, generation, std::move(port_holder)); });
}

void release_pin(File& f) noexcept {
  end_reference(f, [&](uint32_t generation) { close_file(f, generation, UniqueFd()); });
}

namespace sock {

Result<int> socket(Stack& stack, int domain, int type, int protocol) {
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  const bool inet = domain == AF_INET || domain == AF_INET6;
  const bool tcp = inet && kind == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
  const bool udp = inet && kind == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
  int fd = -1;
  ShadowReserve& reserve = stack.shadow_reserve();
  const bool ours = stack.is_owner();
  // A ring's calls would reach the kernel socket while its options are not yet set there.
  const uint8_t age = tcp && ours && !has_ring() ? reserve.age() : 0;
  ShadowReserve::Loan loan;
  if (age != 0)
    loan = reserve.lend(age, domain, (type & SOCK_NONBLOCK) != 0, (type & SOCK_CLOEXEC) != 0);
  fd = loan.number;
  if (fd < 0) fd = libc().socket(domain, type, protocol);
  if (fd < 0 && errno == EMFILE && give_up_leases(stack, 0))
    fd = libc().socket(domain, type, protocol);
  if (fd < 0) return fail_errno("socket");
  if ((!tcp && !udp) || !ours) return fd;
  // No memory or no room in the table: the kernel's socket works without a File.
  auto f = open_file(stack, tcp ? FileKind::kTcp : FileKind::kUdp, domain, fd);
  if (!f) {
    if (loan.place != 0) reserve.end_loan(age, loan);
    return fd;
  }
  init_options(**f);
  if (net_namespace::has_anyone_left() && !net_namespace::is_of_home(fd)) [[unlikely]]
    (*f)->forced.why = Carriage::kNamespace;
  else if (thread_choice::has_any()) [[unlikely]]
    (*f)->forced.why = thread_choice::of_caller();
  (*f)->nonblock.store((type & SOCK_NONBLOCK) != 0, std::memory_order_relaxed);
  if (age != 0) reserve.set_pristine(**f, age, loan);
  forget(fd);  // the number was closed by a call that Vireo did not see
  if (!fd_table().install(fd, **f)) {
    (*f)->touch();
    free_sockets(**f);
    fd_table().free(**f);
  }
  return fd;
}

namespace {

/// A dup of the shadow, for a connection whose last descriptor is being closed: keeps its port
/// reserved. A leased port has a holder already.
UniqueFd holder_for(Handle h) {
  const bool last = h->refs.load(std::memory_order_relaxed) == 1;
  if (!last || h->kind.load(std::memory_order_relaxed) != FileKind::kTcp || !h->is_carried() ||
      h->has_own_name())
    return {};
  return dup_shadow(h.fd);
}

bool in_owner(Handle h) { return h->stack->is_owner(); }

/// kernel::close() of a number that is out of the table, or keeps the kernel socket for reuse. Only
/// for a carried connection: any other may have been passed on (SCM_RIGHTS).
int close_shadow(Handle h) {
  if (h->is_pristine() && h->is_carried() && h->tcp.port == PortOrigin::kLeased &&
      h->refs.load(std::memory_order_relaxed) == 1 && h->stack->shadow_reserve().put(h))
    return 0;
  return kernel::close(h.fd);
}

}  // namespace

Result<void> close(Handle h) {
  if (!in_owner(h)) {
    if (kernel::close(h.fd) != 0) return fail_errno("close");
    return {};
  }
  h->stack->family().heirs.leave(h);
  if (h->kind.load(std::memory_order_relaxed) == FileKind::kTcp && h->is_carried())
    tcp_socket::linger(h);
  const Handle removed = fd_table().remove(h.fd);
  if (!removed) return fail(EBADF, "close");  // another thread closed it first
  UniqueFd holder = holder_for(removed);
  const int r = close_shadow(removed);
  const int err = errno;
  release_file(*removed.file, std::move(holder));
  if (r != 0) return fail(err, "close");
  return {};
}

void leave(int fd) {
  const Handle h = fd_table().find(fd);
  if (h && in_owner(h)) h->stack->family().heirs.leave(h);
}

void forget(int fd) {
  const Handle h = fd_table().find(fd);
  if (!h || !in_owner(h)) return;
  const Handle removed = fd_table().remove(fd);
  if (removed) release_file(*removed.file, UniqueFd());
}

Result<void> adopt_dup(int from, int to) {
  const Handle h = fd_table().find(from);
  if (h && in_owner(h)) {
    h->touch();
    // If the kernel serves it, a descriptor that is not in the table works as well.
    if (!fd_table().duplicate(from, to)) {
      h->holders.store(Holders::kUnknown, std::memory_order_relaxed);
      if (h->engine.load(std::memory_order_relaxed) != nullptr && !fd_table().has_place(to))
        return fail(EMFILE, "dup");
    }
    // If it was handed over after the kernel made the dup, `to` refers to the old kernel socket.
    if (h->is_tcp() && h->engine.load(std::memory_order_relaxed) != nullptr &&
        h->mode.load(std::memory_order_acquire) == Mode::kKernel) [[unlikely]] {
      const int flags = libc().fcntl(to, F_GETFD);
      const bool cloexec = flags > 0 && (flags & FD_CLOEXEC) != 0;
      (void)libc().dup3(from, to, cloexec ? O_CLOEXEC : 0);
    }
  }
  return {};
}

namespace {
/// `fd` is a dup that the kernel has made of `h`.
Result<int> adopt_made(Handle h, int fd) {
  if (auto ok = adopt_dup(h.fd, fd); !ok) {
    kernel::close(fd);
    return std::unexpected(ok.error());
  }
  return fd;
}
}  // namespace

Result<int> dup(Handle h) {
  h->touch();
  const int fd = libc().dup(h.fd);
  if (fd < 0) return fail_errno("dup");
  return adopt_made(h, fd);
}

Result<int> dup_from(Handle h, int least, bool cloexec) {
  h->touch();
  const int fd = libc().fcntl(h.fd, cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, least);
  if (fd < 0) return fail_errno("fcntl");
  return adopt_made(h, fd);
}

Result<int> dup_to(int from, int to, int flags, bool is_dup3) {
  const auto kernel = [&] {
    const int made =
        unless_busy([&] { return is_dup3 ? libc().dup3(from, to, flags) : libc().dup2(from, to); });
    return from_libc(made, "dup2");
  };
  const Handle h = fd_table().find(from);
  if (h && h->is_carried() && !fd_table().has_place(to)) return fail(EBADF, "dup2");
  // In the child of a fork: a number of its choice is meant for another program.
  if (h) (void)use(h, "dup2");
  const Handle target = from == to ? Handle{} : fd_table().find(to);
  if (!target || !in_owner(target)) {
    auto r = kernel();
    if (r && from != to) (void)adopt_dup(from, to);
    return r;
  }
  target->stack->family().heirs.leave(target);
  // The kernel closes `to` and puts `from` there in one step; its port must outlive that step.
  const Handle removed = fd_table().remove(to);
  UniqueFd holder = removed ? holder_for(removed) : UniqueFd();
  auto r = kernel();
  if (!r) {
    if (removed) {
      // Nothing was closed: put it back (install takes a reference of its own).
      (void)fd_table().install(to, *removed.file);
      removed.file->refs.fetch_sub(1, std::memory_order_relaxed);
    }
    return r;
  }
  if (removed) release_file(*removed.file, std::move(holder));
  (void)adopt_dup(from, to);
  return r;
}

}  // namespace sock
}  // namespace vireo
