// The steps of a promotion, and what keeps the kernel from answering meanwhile.
#include "stack/sock/promotion.h"

#include <linux/bpf.h>
#include <unistd.h>

#include <vector>

#include "core/bpf_constant.h"
#include "stack/sock/blocking.h"
#include "stack/sock/carriage.h"
#include "stack/sock/options/options.h"
#include "stack/sock/options/values.h"
#include "stack/sock/packet_filter.h"
#include "stack/sock/protected_fds.h"
#include "stack/sock/repair.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/tcp_socket.h"

namespace vireo {
namespace {

constexpr Duration kLinger = Duration::ms(50);

std::unexpected<Refusal> keep_with_kernel(const char* why, int err = 0) {
  return std::unexpected(Refusal{Carriage::kInherited, err, why});
}

}  // namespace

void Promotion::fork_child() noexcept {
  lock_.reset_after_fork();
  old_.clear();
  drop_all_.reset();
  is_prepared_.store(false, std::memory_order_relaxed);
}

void Promotion::prepare_first(Handle listener) noexcept {
  File& f = *listener.file;
  Stack& stack = *f.stack;
  if (!stack.settings().promote || is_stopped_.load(std::memory_order_relaxed)) {
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
  Stack& stack = *f.stack;
  const SocketOptions& options = *f.tcp.options;
  is_prepared_.store(true, std::memory_order_relaxed);
  if (!stack.settings().promote) return keep_with_kernel("its listener");
  if (is_stopped_.load(std::memory_order_relaxed)) return keep_with_kernel("for a child");
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
  f.engine.store(&e, std::memory_order_release);
  f.mode.store(Mode::kCarried, std::memory_order_release);
  guard.unlock();
  replace_shadow(fd, placeholder.get());
  f.placeholder = true;
  if (note_old(noted)) stack.wake_helper();
  return {};
}

}  // namespace vireo
