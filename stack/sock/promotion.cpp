// The steps of a promotion, and what keeps the kernel from answering meanwhile.
#include "stack/sock/promotion.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/bpf_constant.h"
#include "core/log.h"
#include "core/own_thread.h"
#include "stack/sock/async_io.h"
#include "stack/sock/blocking.h"
#include "stack/sock/carriage.h"
#include "stack/sock/options/options.h"
#include "stack/sock/options/values.h"
#include "stack/sock/packet_filter.h"
#include "stack/sock/protected_fds.h"
#include "stack/sock/repair.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/uring.h"

namespace vireo {
namespace {

constexpr Duration kLinger = Duration::ms(50);

/// What proves a connection long-lived: so many receives that brought something, and this age.
constexpr uint8_t kProof = 16;
/// In steps of 2^24 ns, 17 ms: 50 to 67 ms.
constexpr uint8_t kMinAge = 4;
/// After a refusal no connection is tried for so long, doubled for each further one in a row.
constexpr Duration kPause = Duration::s(1);
constexpr Duration kThreadsPause = Duration::ms(100);
constexpr unsigned kMostDoublings = 6;

/// A clock that fits the File. It comes round every 4 s: an old connection may then seem young,
/// once.
uint8_t steps(Instant now) { return static_cast<uint8_t>(now.ns() >> 24); }

/// In 17 ms, at one of its next receives: not always the same of those that a message takes.
void look_again_soon(File& f, Instant now) noexcept {
  f.looked_at.store(static_cast<uint8_t>(steps(now) - kMinAge + 1), std::memory_order_relaxed);
  f.receives_left.store(static_cast<uint8_t>(1 + (now.ns() >> 8) % 8), std::memory_order_relaxed);
}

/// But for Vireo's own threads.
bool has_one_thread() noexcept {
  struct stat s{};
  // Linux fs/proc/base.c proc_task_getattr(): a link for each thread, beside the folder's own.
  return ::stat("/proc/self/task", &s) == 0 &&
         static_cast<int>(s.st_nlink) - 2 - own_threads() == 1;
}

bool is_ours_alone(File& f) noexcept {
  switch (f.holders.load(std::memory_order_relaxed)) {
    case Holders::kUs:
      return true;
    case Holders::kParent:
      return f.stack->family().inherited.is_closed_by_parent(f);
    case Holders::kChild:
    case Holders::kUnknown:
      break;
  }
  return false;
}

/// Control lock held.
bool may_leave_kernel(Handle h) noexcept {
  File& f = *h.file;
  if (!h.is_alive() || !f.is_tcp() || f.mode.load(std::memory_order_relaxed) != Mode::kKernel ||
      f.tcp.link != Link::kConnected || fd_table().find(h.fd).file != &f ||
      f.refs.load(std::memory_order_relaxed) != 1 || !is_ours_alone(f))
    return false;
  if (f.forced.to_kernel() && f.forced.why != Carriage::kInherited) return false;
  const int flags = libc().fcntl(h.fd, F_GETFL);
  if (flags < 0 || (flags & O_ASYNC) != 0 || sock::is_async(f) || sock::has_ring()) return false;
  f.nonblock.store((flags & O_NONBLOCK) != 0, std::memory_order_relaxed);
  return true;
}

std::unexpected<Refusal> keep_with_kernel(const char* why, int err = 0) {
  return std::unexpected(Refusal{Carriage::kInherited, err, why});
}

}  // namespace

void Promotion::fork_child() noexcept {
  lock_.reset_after_fork();
  old_.clear();
  drop_all_.reset();
  is_prepared_.store(false, std::memory_order_relaxed);
  making_.store(Making::kNotBegun, std::memory_order_relaxed);
  not_before_ns_.store(0, std::memory_order_relaxed);
  failures_ = 0;
  processor_time_.forget();
}

void Promotion::prepare_first(Handle listener) noexcept {
  File& f = *listener.file;
  Stack& stack = *f.stack;
  if (stack.settings().promote != PromoteChoice::kAtAccept ||
      is_stopped_.load(std::memory_order_relaxed)) {
    is_prepared_.store(true, std::memory_order_relaxed);
    return;
  }
  if (!stack.is_owner() || !f.is_tcp() || f.mode.load(std::memory_order_acquire) != Mode::kKernel)
    return;
  {
    const LockGuard control(f.control);
    if (!listener.is_alive() || f.tcp.link != Link::kUnconnected ||
        f.forced.why != Carriage::kInherited)
      return;
  }
  int listens = 0;
  socklen_t n = sizeof listens;
  const auto name = kernel_name(listener.fd);
  if (libc().getsockopt(listener.fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 ||
      listens == 0 || !name || !may_carry(stack, Role::kTcpServer, {}, *name, {}) ||
      is_prepared_.exchange(true, std::memory_order_relaxed))
    return;
  const auto engine = stack.engine_for({.local = *name});
  if (!engine) return;
  const EngineGuard guard(**engine);
  (void)(*engine)->ports().reach(name->addr);
  (void)(*engine)->listeners().may_give_to_kernel();
}

/// @return the filter, or -errno.
int Promotion::drop_all() noexcept {
  if (drop_all_) return drop_all_.get();
  const int fd = load_constant_program(BPF_PROG_TYPE_SOCKET_FILTER, 0, "vireo_drop");
  if (fd < 0) return fd;
  drop_all_.reset(protect_fd(fd));
  return drop_all_.get();
}

bool Promotion::note_old(const Old& old) noexcept {
  const LockGuard guard(lock_);
  const bool first = old_.empty();
  old_.push_back(old);
  return first;
}

Duration Promotion::tend(Instant now) noexcept {
  for (;;) {
    Old old;
    {
      const LockGuard guard(lock_);
      if (old_.empty()) return Duration::s(3600);
      old = old_.front();
    }
    if (now - old.since < kLinger) return old.since + kLinger - now + Duration::ms(1);
    if (!old.engine->try_acquire()) return Duration::ms(1);
    UniqueFd fd;  // closed without the engine's lock
    if (TcpFlow* const f = old.engine->tcp().slab().get(old.flow)) fd = std::move(f->port_holder);
    old.engine->unlock();
    const LockGuard guard(lock_);
    old_.pop_front();  // by this thread alone
  }
}

Carried<void> Promotion::take_over(File& f, int fd, const Endpoint& local, const Endpoint& peer) {
  is_prepared_.store(true, std::memory_order_relaxed);
  if (f.stack->settings().promote != PromoteChoice::kAtAccept)
    return keep_with_kernel("its listener");
  if (is_stopped_.load(std::memory_order_relaxed)) return keep_with_kernel("for a child");
  return move_here(f, fd, local, peer);
}

/// Of a File in the table, control lock held.
Carried<void> Promotion::move_here(File& f, int fd, const Endpoint& local, const Endpoint& peer) {
  Stack& stack = *f.stack;
  const SocketOptions& options = *f.tcp.options;
  if (auto may = may_carry(stack, Role::kTcpServer, {}, local, {}); !may) return may;
  const RouteRequest way = tcp_socket::way_to(f, local, peer);
  const auto engine = stack.engine_for({.local = local, .way = &way});
  if (!engine) return std::unexpected(engine.error());
  Engine& e = **engine;
  look_at_filter(stack);
  const Passage passage{
      .local = local, .remote = peer, .interface = bound_interface(options), .begins_there = true};
  const uint32_t rules = rules_generation(stack);
  if (auto pass = may_pass(stack, passage); !pass) return pass;
  int filter = -1;
  {
    const LockGuard guard(lock_);
    filter = drop_all();
  }
  if (filter < 0) return keep_with_kernel("no socket filter", -filter);
  UniqueFd old = dup_shadow(fd);
  if (!old) return keep_with_kernel("no descriptor", errno);
  auto made = stack.placeholders().take_number(f.domain.load(std::memory_order_relaxed), true);
  if (!made) return keep_with_kernel(made.error().where, made.error().code);
  const UniqueFd placeholder(*made);

  std::vector<std::byte> unread;
  EngineGuard guard(e);
  const Instant now = Clock::now();
  if (auto pass = may_still_pass(stack, passage, rules); !pass) return pass;
  const auto route = e.next_hops().route(way);
  if (!route) return std::unexpected(route.error());
  const FlowKey key{
      IpProto::kTcp, !local.addr.is_v4(), VlanId(), local, {peer.addr, peer.port, way.oif.value()}};
  TcpFlows& flows = e.tcp();
  const auto flow = flows.begin_take_over(*route, key, ip_settings(options, key.v6), now);
  if (!flow) return std::unexpected(flow.error());
  const auto give_up = [&](const char* why, int err) {
    (void)libc().setsockopt(fd, SOL_SOCKET, SO_DETACH_BPF, &filter, sizeof filter);
    flows.give_up_take_over(**flow, now);
    e.steering().give_strays(Clock::now());
    return keep_with_kernel(why, err);
  };
  if (libc().setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &filter, sizeof filter) != 0)
    return give_up("no socket filter", errno);
  const auto state = take_from_kernel(fd, unread);
  if (!state) return give_up(state.error().where, state.error().code);
  if (!flows.finish_take_over(**flow, f.tcp.options.config(), *state, &f, *f.stats, Clock::now())) {
    leave_with_kernel(fd);
    return give_up("no buffers", ENOBUFS);
  }
  (*flow)->reuse_addr = options.socket.reuse_addr != 0;
  (*flow)->reuse_port = options.socket.reuse_port != 0;
  (*flow)->port_holder = std::move(old);
  const Old noted{now, &e, flows.slab().handle(**flow)};
  f.stats->tcp_state = static_cast<uint8_t>(tcp::state((*flow)->tcb));
  f.flow = *flow;
  send_reports::follow_new(f, e);
  f.engine.store(&e, std::memory_order_release);
  f.mode.store(Mode::kCarried, std::memory_order_release);
  guard.unlock();
  f.ready.notify(kLeavesKernel);
  replace_shadow(fd, placeholder.get());
  f.placeholder = true;
  if (note_old(noted)) stack.wake_helper();
  return {};
}

bool Promotion::lacks_processors(const Stack& stack, Instant now) noexcept {
  return stack.settings().promote == PromoteChoice::kAuto && processor_time_.is_short(now);
}

void Promotion::watch(File& f) noexcept {
  const PromoteChoice choice = f.stack->settings().promote;
  if (choice != PromoteChoice::kAuto && choice != PromoteChoice::kProven) return;
  f.receives_left.store(kProof, std::memory_order_relaxed);
  f.looked_at.store(steps(Clock::now()), std::memory_order_relaxed);
}

struct Promotion::Maker {
  Promotion& promotion;
  Stack& stack;
  Endpoint local;
};

void* Promotion::run_maker(void* argument) noexcept {
  const std::unique_ptr<Maker> m(static_cast<Maker*>(argument));
  bool is_open = false;
  if (const auto engine = m->stack.engine_for({.local = m->local})) {
    const EngineGuard guard(**engine);
    is_open = (*engine)->ports().reach(m->local.addr).has_value();
    // A worker that joined could not leave without resets.
    if (!(*engine)->listeners().may_give_to_kernel()) m->stack.family().worker.join_no_more();
  }
  // And what the first of them would wait for besides.
  if (is_open) {
    look_at_filter(m->stack);
    m->stack.watch_over_tcp();
    const LockGuard guard(m->promotion.lock_);
    (void)m->promotion.drop_all();
  }
  m->promotion.making_.store(is_open ? Making::kDone : Making::kFailed, std::memory_order_release);
  return nullptr;
}

Promotion::Making Promotion::make_engine(Stack& stack, const Endpoint& local) noexcept {
  Making now = making_.load(std::memory_order_acquire);
  if (now != Making::kNotBegun ||
      !making_.compare_exchange_strong(now, Making::kBegun, std::memory_order_acquire))
    return now;
  auto* const maker = new (std::nothrow) Maker{*this, stack, local};
  pthread_t thread;
  if (maker == nullptr || start_own_thread(thread, run_maker, maker) != 0) {
    delete maker;
    making_.store(Making::kFailed, std::memory_order_relaxed);
    return Making::kFailed;
  }
  ::pthread_detach(thread);
  return Making::kBegun;
}

[[gnu::cold]] void Promotion::consider(Handle h) noexcept {
  File& f = *h.file;
  const Instant now = Clock::now();
  const auto age = static_cast<uint8_t>(steps(now) - f.looked_at.load(std::memory_order_relaxed));
  f.receives_left.store(kProof, std::memory_order_relaxed);  // to be looked at again
  // A handler that interrupted a wait in the kernel must leave it the socket.
  if (age < kMinAge || t_signals.in_kernel != 0) return;
  if (now.ns() < not_before_ns_.load(std::memory_order_relaxed)) return;
  f.looked_at.store(steps(now), std::memory_order_relaxed);
  if (!f.stack->is_owner() || Owner::is_memory_shared()) return;
  // Vireo's own begin and end meanwhile.
  if (making_.load(std::memory_order_acquire) == Making::kBegun) return;
  if (has_one_thread())
    take_proven(h, now);
  else
    not_before_ns_.store((now + kThreadsPause).ns(), std::memory_order_relaxed);
}

void Promotion::take_proven(Handle h, Instant now) noexcept {
  File& f = *h.file;
  Stack& stack = *f.stack;
  const auto give_up = [&] { f.receives_left.store(0, std::memory_order_relaxed); };
  const Holders holders = f.holders.load(std::memory_order_relaxed);
  if (holders == Holders::kChild || holders == Holders::kUnknown) return give_up();
  if (!is_ours_alone(f)) return;
  if (lacks_processors(stack, now)) return;
  if (!is_plain_now(h.fd)) return look_again_soon(f, now);
  const auto local = kernel_name(h.fd);
  const auto peer = kernel_peer(h.fd);
  if (!local || !peer) return give_up();
  switch (make_engine(stack, *local)) {
    case Making::kNotBegun:
    case Making::kBegun:
      return;
    case Making::kFailed:
      return give_up();
    case Making::kDone:
      break;
  }
  Carried<void> done;
  {
    const LockGuard control(f.control);
    give_up();
    if (!may_leave_kernel(h)) return;
    done = move_here(f, h.fd, *local, *peer);
    if (done) record_carried(f, *local, *peer);
  }
  if (done) {
    stack.watch_over_tcp();
    failures_ = 0;
    f.ready.notify(kModeChanged | kReadyIn | kReadyOut);
    return;
  }
  log<LogLevel::kDebug>("descriptor {}: the connection stays the kernel's ({}: {})", h.fd,
                        done.error().where, std::strerror(done.error().err));
  if (done.error().err == EAGAIN) return;  // for what was under way on this connection
  const Duration pause = kPause * (1 << std::min(failures_++, kMostDoublings));
  not_before_ns_.store((now + pause).ns(), std::memory_order_relaxed);
}

}  // namespace vireo
