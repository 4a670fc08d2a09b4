#include "stack/sock/process.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/log.h"
#include "core/stats_reading.h"
#include "stack/filter/filter.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/sockets.h"

namespace vireo {
namespace {

constinit std::atomic<Stack*> g_stack{nullptr};

EngineEvents socket_events() {
  return {
      .tcp = tcp_socket::on_effects, .accept = listener::on_accept, .udp = udp_socket::on_datagram};
}

/// A kept port costs a descriptor: at most one of 16 that the program may have.
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
    : settings_(std::move(parts.settings)),
      defaults_(KernelDefaults::read()),
      // One is opened by whoever needs it first, and a number of an interface is of a namespace.
      opener_([open = std::move(parts.opener)](const net::Link& link,
                                               Arena& arena) -> Carried<std::unique_ptr<Device>> {
        if (!net_namespace::is_thread_home()) return std::unexpected(kElsewhere);
        return open(link, arena);
      }),
      want_helper_(parts.want_helper),
      // On the shared-memory wire the kernel, through which it speaks, does not know the way.
      want_mourner_(parts.want_mourner && settings_.mourner &&
                    settings_.device != DeviceChoice::kShm),
      want_filter_(parts.want_filter && settings_.respect_filter &&
                   settings_.device != DeviceChoice::kShm),
      may_have_rings_(parts.may_have_rings),
      program_(program_invocation_short_name),
      rings_(settings_) {
  (void)fd_table().init();
  first_options_ = vireo::first_options(*this);
  // Before the helper is started. Where the kernel cannot, locks cost what they always did.
  (void)BiasedLock::allow();
}

Stack::~Stack() {
  fd_table().reclaim();
  helper_.reset();
  engine_ptr_.store(nullptr, std::memory_order_release);
  for (auto& e : engines_) e.reset();
  mirror_.reset();
  filter_.reset();
  mourner_.reset();
  while (free_waiters_ != nullptr) delete std::exchange(free_waiters_, free_waiters_->next);
  if (stats_fd_ >= 0) {
    ::munmap(stats_, sizeof *stats_);
    unprotect_fd(stats_fd_);
    kernel::close(stats_fd_);
  } else {
    delete stats_;
  }
  first_options_ = SharedOptions();
  options_table_.clear();
}

const Rules& Stack::rules() {
  if (const Rules* r = rules_ptr_.load(std::memory_order_acquire)) return *r;
  const LockGuard guard(rules_lock_);
  if (!rules_) {
    Diagnostics said;
    // The default file may be missing; one that was named may not.
    const bool named = settings_.config_file != Settings{}.config_file;
    rules_ = std::make_unique<Rules>(Rules::load(settings_.config_file, named, said));
    for (const Diagnostic& d : said) log<LogLevel::kWarn>("{}", d.text);
    rules_ptr_.store(rules_.get(), std::memory_order_release);
  }
  return *rules_;
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

/// Number `id` of them, by the mirror that there is.
Carried<std::unique_ptr<Engine>> Stack::create_engine(unsigned id) {
  EngineConfig config;
  config.arena_bytes = settings_.arena_bytes;
  if (may_have_rings_) config.arena_bytes = rings_.arena_bytes(settings_);
  config.huge_pages = settings_.mem_alloc_type == MemAlloc::kHuge;
  config.time_wait = settings_.tcp_timewait;
  config.helper_grace = settings_.helper_grace;
  config.autocork = settings_.autocork;
  config.max_orphans = static_cast<uint32_t>(defaults_.tcp_max_orphans);
  config.port_leases = port_leases(settings_) / rings_.most();
  // An interface is told of once, by the first engine, which opens what another does.
  if (id == 0) config.port_stats = stats().ports;
  if (mourner_) config.will = &mourner_->will();
  config.engines = rings_.most();
  if (id == 0 && settings_.ring_allocation_logic_tx != settings_.ring_allocation_logic_rx)
    log<LogLevel::kInfo>(
        "VMA_RING_ALLOCATION_LOGIC_TX differs from ..._RX, which decides: a socket has one ring");
  if (rings_.most() != 1) {
    // A peer's connection may come back in another: sequence numbers go on (RFC 6528).
    if (secret_.k0 == 0) secret_ = tcp::IsnSecret::random();
    config.secret = secret_;
  }
  auto engine = Engine::create(EngineId(static_cast<uint16_t>(id)), config, opener_, *mirror_,
                               socket_events(), stats().engines[id]);
  if (!engine) return refuse(engine.error());
  return std::move(*engine);
}

Carried<Engine*> Stack::make_engine() {
  auto mirror = net::Mirror::open();
  if (!mirror) return refuse(mirror.error());
  mirror_ = std::move(*mirror);
  if (want_mourner_) mourner_ = Mourner::create();
  if (want_filter_) filter_ = std::make_unique<filter::Filter>();
  is_filter_unread_ = filter_ && filter_->rules()->unreadable != 0;
  auto engine = create_engine(0);
  if (!engine) {
    filter_.reset();
    mirror_.reset();
    return std::unexpected(engine.error());
  }
  if (want_helper_) {
    auto helper =
        Helper::start(**engine, *mirror_,
                      {.grace = settings_.helper_grace,
                       .cpus = settings_.helper_affinity.cpus,
                       .errand = {.fd = filter_ ? filter_->fd() : -1,
                                  .ready = [](void* s) { static_cast<Stack*>(s)->judge_again(); },
                                  .self = this}});
    if (!helper) {
      engine->reset();
      filter_.reset();
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

// ---- counters

StatsLayout& Stack::stats() {
  if (StatsLayout* s = stats_ptr_.load(std::memory_order_acquire)) return *s;
  const LockGuard guard(stats_lock_);
  if (stats_ == nullptr) map_stats();
  stats_ptr_.store(stats_, std::memory_order_release);
  return *stats_;
}

void Stack::map_stats() {
  const bool shown = !settings_.stats_dir.empty();
  const int fd = !shown ? -1
                        : static_cast<int>(::syscall(SYS_memfd_create, kStatsMemfdName,
                                                     MFD_CLOEXEC | MFD_ALLOW_SEALING));
  void* at = MAP_FAILED;
  // Sealed, so that a tool of root's may map it without trusting us.
  if (fd >= 0 && ::ftruncate(fd, sizeof(StatsLayout)) == 0 &&
      ::syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    at = ::mmap(nullptr, sizeof(StatsLayout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    // Nobody can read the counters, but they can be counted.
    if (fd >= 0) kernel::close(fd);
    stats_ = new StatsLayout;
  } else {
    stats_fd_ = protect_fd(fd);
    stats_ = new (at) StatsLayout;
  }
  stats_->bytes = sizeof(StatsLayout);
  stats_->pid = ::getpid();
  std::strncpy(stats_->program, program_.c_str(), sizeof stats_->program - 1);
}

SocketStats& Stack::take_stats(int proto, int family, int fd) {
  StatsLayout& all = stats();
  const LockGuard guard(stats_lock_);
  for (uint32_t i = 0; i < kStatsSockets; ++i) {
    SocketStats& s = all.sockets[(stats_hint_ + i) % kStatsSockets];
    const uint32_t g = s.generation.load(std::memory_order_relaxed);
    if (g != 0 && s.closed == 0) continue;
    stats_hint_ = (stats_hint_ + i + 1) % kStatsSockets;
    // Dirty from its last use; the generation goes on, so that no reader takes it for the old one.
    s.~SocketStats();
    new (&s) SocketStats;
    s.fd = fd;
    s.proto = static_cast<uint8_t>(proto);
    s.family = static_cast<uint8_t>(family);
    s.generation.store(g + 2, std::memory_order_release);
    return s;
  }
  return spare_stats_;
}

void Stack::put_stats(SocketStats& s) {
  if (&s == &spare_stats_) return;
  const LockGuard guard(stats_lock_);
  const uint32_t g = s.generation.load(std::memory_order_relaxed);
  s.generation.store(g + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // pairs with the reader's acquire fence
  s.fd = -1;
  s.closed = 1;
  s.generation.store(g + 2, std::memory_order_release);
  ClosedStats& sum = stats_->closed[static_cast<size_t>(s.carriage)];
  sum.sockets.add();
  for (const auto& c : kSocketCounters) (sum.*c.counter).add((s.*c.counter).get());
}

// ---- accepted connections

Result<int> Stack::place_number(int family, bool cloexec) {
  UniqueFd& place = family == AF_INET6 ? placeholder6_ : placeholder4_;
  {
    const LockGuard guard(place_lock_);
    if (!place) {
      if (!net_namespace::is_thread_home()) [[unlikely]]  // for this one alone
        return from_libc(libc().socket(family, SOCK_STREAM | (cloexec ? SOCK_CLOEXEC : 0), 0),
                         "placeholder");
      const int fd = libc().socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) return fail_errno("placeholder");
      place.reset(protect_fd(fd));
    }
  }
  const int fd = libc().fcntl(place.get(), cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (fd < 0) return fail_errno("accept");
  return fd;
}

}  // namespace vireo
