// Makes the first engine and its companions: mirror, mourner, packet filter, helper.
#include "stack/sock/stack.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/log.h"
#include "stack/filter/filter.h"
#include "stack/sock/listener.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/options/options.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/udp_socket.h"

namespace vireo {
namespace {

constinit std::atomic<Stack*> g_stack{nullptr};

EngineEvents socket_events() {
  return {.tcp = tcp_socket::on_effects,
          .accept = listener::on_accept,
          .udp = udp_socket::on_datagram,
          .tcp_left = send_reports::on_tcp_left,
          .tcp_acked = send_reports::on_tcp_acked,
          .udp_left = send_reports::on_udp_left};
}

/// Each kept port holds a descriptor: at most a sixteenth of RLIMIT_NOFILE.
uint32_t port_leases(const Settings& s) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<uint32_t>(
      std::min<rlim_t>(static_cast<rlim_t>(s.port_leases), limit.rlim_cur / 16));
}

constexpr Refusal kElsewhere{Carriage::kNamespace, 0, "interfaces"};

}  // namespace

Stack* process_stack() noexcept { return g_stack.load(std::memory_order_acquire); }
void install_stack(Stack* s) noexcept { g_stack.store(s, std::memory_order_release); }

Stack::Stack(Parts parts)
    : parts_(std::move(parts)),
      defaults_(KernelDefaults::read()),
      program_(program_invocation_short_name),
      rings_(parts_.settings),
      counters_(parts_.settings, program_) {
  // Any thread may open a device first, but an interface index belongs to one namespace.
  parts_.opener = [this, open = std::move(parts_.opener)](
                      const net::Link& link, Arena& arena) -> Carried<std::unique_ptr<Device>> {
    if (!net_namespace::is_thread_home()) return std::unexpected(kElsewhere);
    auto device = open(link, arena);
    if (!device && device.error().why == Carriage::kDeviceBusy && group_.refusal != nullptr)
      device.error().where = group_.refusal;  // else it would have been shared
    return device;
  };
  // The mourner and the filter work through the kernel, which does not know the shm wire.
  const bool is_shm = parts_.settings.device == DeviceChoice::kShm;
  parts_.want_mourner = parts_.want_mourner && parts_.settings.mourner && !is_shm;
  parts_.want_filter = parts_.want_filter && parts_.settings.respect_filter && !is_shm;
  (void)fd_table().init();
  first_options_ = vireo::first_options(*this);
  // Before the helper: it is fast with one thread only. Without kernel support locks stay plain.
  (void)BiasedLock::allow();
}

Stack::~Stack() {
  fd_table().reclaim();
  helper_.reset();
  engine_ptr_.store(nullptr, std::memory_order_release);
  for (auto& e : engines_) e.reset();
  mirror_.reset();
  host_filter_.close();
  mourner_.reset();
  first_options_ = SharedOptions();
  options_table_.clear();
}

Carried<Engine*> Stack::engine() {
  if (Engine* e = engine_ptr_.load(std::memory_order_acquire)) return e;
  const LockGuard guard(life_lock_);
  if (Engine* e = engine_ptr_.load(std::memory_order_relaxed)) return e;
  if (engine_refusal_) return std::unexpected(*engine_refusal_);
  if (!net_namespace::is_thread_home()) [[unlikely]]
    return std::unexpected(kElsewhere);
  auto made = make_engine();
  if (!made) engine_refusal_ = made.error();
  return made;
}

namespace {

std::unexpected<Refusal> refuse(const Err& e) {
  const Carriage why = e.code == ENOMEM                      ? Carriage::kMemory
                       : e.code == EPERM || e.code == EACCES ? Carriage::kRights
                                                             : Carriage::kDevice;
  return std::unexpected(Refusal{why, e.code, e.where});
}

}  // namespace

/// Engine `id`, on the existing mirror.
Carried<std::unique_ptr<Engine>> Stack::create_engine(unsigned id) {
  EngineConfig config;
  config.arena_bytes = parts_.settings.arena_bytes;
  if (parts_.may_have_rings) config.arena_bytes = rings_.arena_bytes(parts_.settings);
  config.huge_pages = parts_.settings.mem_alloc_type == MemAlloc::kHuge;
  config.time_wait = parts_.settings.tcp_timewait;
  config.helper_grace = parts_.settings.helper_grace;
  config.autocork = parts_.settings.autocork;
  config.max_orphans = static_cast<uint32_t>(defaults_.tcp_max_orphans);
  config.port_leases = port_leases(parts_.settings) / rings_.most();
  // Only the first engine reports interfaces; it opens all that others open.
  if (id == 0) config.port_stats = stats().ports;
  if (mourner_) config.will = &mourner_->will();
  config.engines = rings_.most();
  if (id == 0 &&
      parts_.settings.ring_allocation_logic_tx != parts_.settings.ring_allocation_logic_rx)
    log<LogLevel::kInfo>(
        "VMA_RING_ALLOCATION_LOGIC_TX differs from ..._RX, which decides: a socket has one ring");
  // A peer may connect again through another engine, also of another process: sequence numbers must
  // continue (RFC 6528). And one may get what answers another one's SYN cookie.
  if (secret_.k0 == 0)
    secret_ = group_.group != nullptr ? group_->secret() : tcp::IsnSecret::random();
  config.secret = secret_;
  const EngineId number(static_cast<uint16_t>(id));
  EngineStats& stats = this->stats().engines[id];
  if (id == 0 && group_.group != nullptr)
    return Engine::create_on(group_->take_arena(), number, config, parts_.opener, *mirror_,
                             socket_events(), stats);
  auto engine = Engine::create(number, config, parts_.opener, *mirror_, socket_events(), stats);
  if (!engine) return refuse(engine.error());
  return std::move(*engine);
}

/// Without the helper's thread nobody could join: then it has its interfaces alone.
void Stack::enter_group() {
  if (!parts_.group || !parts_.want_helper) return;
  auto group = parts_.group();
  if (group) {
    group_.group = std::move(*group);
    host_sockets_.group = group_.group.get();
    return;
  }
  group_.refusal = group.error().where;
  log<LogLevel::kWarn>("interfaces that other processes use stay with the kernel: {} ({})",
                       group_.refusal, std::strerror(group.error().code));
}

void Stack::let_others_join() {
  Engine* const e = engine_if_any();
  if (e == nullptr) return;  // in a moment; they wait
  if (group_->is_alone()) {
    const EngineGuard guard(*e);
    group_->end_solitude();
    e->ports().share();
  }
  if (group_->serve()) return;
  // The descriptor stays readable; others may serve, and the program may close some.
  constexpr timespec kNap{0, 1'000'000};
  ::syscall(SYS_nanosleep, &kNap, nullptr);
}

/// Also looks after the queues while the program sleeps: processes that are stopped may have taken
/// all frames that wait to be received into, and if all others sleep no frame would come to wake
/// them.
Duration Stack::tend_group(Instant now) {
  constexpr Duration kReadEvery = Duration::ms(500);
  constexpr Duration kLookAtQueues = Duration::ms(50);
  if (group_.group == nullptr) return Duration::max();
  const Duration next = std::min(group_->tend(now), family_.worker.tend(now));
  if (now - group_.read >= kReadEvery) {
    group_.read = now;
    group_->write_stats(stats().group);
  }
  Engine* const e = engine_if_any();
  const GroupStats& g = stats().group;
  const bool must_give = g.unused.get() < g.frames.get() / 8;  // frames, to those who join
  if (e == nullptr || group_->is_alone() || (e->live_flows() == 0 && !must_give)) return next;
  if (const Duration since = now - std::max(e->last_poll(), group_.looked); since < kLookAtQueues)
    return std::min(next, kLookAtQueues - since);
  group_.looked = now;
  if (e->try_acquire()) {
    (void)e->ports().arm_all();
    e->unlock();
  }
  return std::min(next, kLookAtQueues);
}

Carried<Engine*> Stack::make_engine() {
  auto mirror = net::Mirror::open();
  if (!mirror) return refuse(mirror.error());
  mirror_ = std::move(*mirror);
  if (parts_.want_mourner) mourner_ = Mourner::create();
  enter_group();
  if (parts_.want_filter) host_filter_.open(group_.group);
  auto engine = create_engine(0);
  if (!engine) {
    host_sockets_.group = nullptr;
    group_.group.reset();
    host_filter_.close();
    mirror_.reset();
    return std::unexpected(engine.error());
  }
  if (parts_.want_helper) {
    const filter::Filter* const filter = host_filter_.get();
    const Helper::Errand rules = {.fd = filter != nullptr ? filter->fd() : -1,
                                  .ready = [](void* s) { static_cast<Stack*>(s)->judge_again(); },
                                  .self = this};
    const Helper::Errand group = {
        .fd = group_.group != nullptr ? group_->fd() : -1,
        .ready = [](void* s) { static_cast<Stack*>(s)->let_others_join(); },
        .tend = [](void* s, Instant now) { return static_cast<Stack*>(s)->tend_group(now); },
        .self = this};
    const Helper::Errand old_sockets = {
        .tend = [](void* s, Instant now) { return static_cast<Stack*>(s)->promotion().tend(now); },
        .self = this};
    const Helper::Errand host_sockets = {.tend =
                                             [](void* s, Instant now) {
                                               auto& stack = *static_cast<Stack*>(s);
                                               return stack.host_sockets().tend(stack, now);
                                             },
                                         .self = this};
    if (auto ok = family_.heirs.open(); !ok)
      log<LogLevel::kWarn>("children cannot use the connections of this process ({}: {})",
                           ok.error().where, std::strerror(ok.error().code));
    const Helper::Errand children = {
        .fd = family_.heirs.fd(),
        .ready = [](void* s) { static_cast<Stack*>(s)->family().heirs.serve(); },
        .self = this};
    auto helper = Helper::start(**engine, *mirror_,
                                {.grace = parts_.settings.helper_grace,
                                 .cpus = parts_.settings.helper_affinity.cpus,
                                 .errands = {rules, group, old_sockets, host_sockets, children}});
    if (!helper) {
      engine->reset();
      group_.group.reset();
      host_filter_.close();
      mirror_.reset();
      return refuse(helper.error());
    }
    helper_ = std::move(*helper);
  }
  engines_[0] = std::move(*engine);
  engine_count_.store(1, std::memory_order_release);  // pairs with engine_count()
  tell_of_filter(*engines_[0]);
  engine_ptr_.store(engines_[0].get(), std::memory_order_release);
  return engines_[0].get();
}

}  // namespace vireo
