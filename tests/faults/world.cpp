#include "tests/faults/world.h"

#include <dirent.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "dev/mlx5/mlx5.h"
#include "dev/verbs/verbs.h"
#include "tests/apparatus/mem/virtual_clock.h"

namespace vireo::test {
namespace {

constexpr Duration kTurn = Duration::us(10);
constexpr Duration kHelperLooks = Duration::s(1);  // engine/helper.cpp
constexpr Duration kStep = Duration::us(100);      // of idle time, at least
constexpr Duration kGrace = Duration::ms(1);
constexpr Duration kForEver = Duration::s(3600);

VirtualClock g_clock(Instant::from_ns(1'000'000'000'000));
Shape g_shape;
World* g_world = nullptr;

int sleep_in_world(pollfd* fds, nfds_t n, const timespec* timeout, const sigset_t*) {
  return g_world->sleep(fds, n, timeout);
}

void run_command(const std::string& command) {
  if (std::system(command.c_str()) != 0)  // NOLINT: a test's own constant commands
    ADD_FAILURE() << command;
}

std::string mac(int host) { return "02:00:00:00:00:0" + std::to_string(host); }

/// The kernel's tables as they stay: no neighbour is ever asked for.
void settle_kernel(int which) {
  static bool done[3] = {};
  if (std::exchange(done[which], true)) return;
  const int other = 3 - which;
  run_command("ip link set eth0 address " + mac(which));
  run_command("ip neigh replace 10.77.0." + std::to_string(other) + " lladdr " + mac(other) +
              " nud permanent dev eth0");
}

size_t open_descriptors() {
  size_t n = 0;
  DIR* d = opendir("/proc/self/fd");
  while (readdir(d) != nullptr) ++n;
  closedir(d);
  return n;
}

}  // namespace

std::ostream& operator<<(std::ostream& o, Backend b) {
  constexpr const char* kNames[] = {"verbs", "mlx5", "striding", "lro"};
  return o << kNames[static_cast<int>(b)];
}

Stack::Parts parts_of_host(int which) {
  settle_kernel(which);
  Settings s;
  s.config_file = "/dev/null";
  s.rx_poll = 0;  // sleeps at once: while it spins, no time goes by
  s.select_poll = Duration();
  s.arena_bytes = Bytes(static_cast<int64_t>(g_shape.arena_bytes));
  s.mem_alloc_type = MemAlloc::kAnonymous;
  s.tcp_timewait = Duration::s(1);
  if (which == 2) {
    s.ring_allocation_logic_rx = g_shape.rings;
    s.ring_limit_per_interface = g_shape.ring_limit;
  }
  const std::string device = "softnic" + std::to_string(which - 1);
  const Shape shape = g_shape;
  return {.settings = s,
          .opener = [=](const net::Link& link, Arena& arena) -> Carried<std::unique_ptr<Device>> {
            const VerbsTarget target{.device = device, .mtu = link.mtu, .mac = link.mac};
            const VerbsOptions options{.rx_frames = shape.rx_frames,
                                       .tx_frames = shape.tx_frames,
                                       .stamps = shape.stamps,
                                       .stride = shape.backend == Backend::kStriding,
                                       .lro = shape.backend == Backend::kLro};
            auto d = shape.backend == Backend::kVerbs ? open_verbs(target, arena, options)
                                                      : open_mlx5(target, arena, options);
            if (!d)
              return std::unexpected(Refusal{Carriage::kDevice, d.error().code, d.error().where});
            return std::move(*d);
          },
          .want_helper = false,
          .may_have_rings = true};
}

World::World(const Shape& shape) : shape_(shape) {
  unsetenv("SOFTNIC_WIRE");
  softnic_drive(true, false);
  ibv_device** list = ibv_get_device_list(nullptr);
  std::copy_n(list, 2, nics_);
  ibv_free_device_list(list);
  for (ibv_device* d : nics_) {
    softnic_set_link(d, true);
    softnic_hold(d, false);
  }
  descriptors_ = open_descriptors();
  g_shape = shape;
  g_world = this;
  g_libc.ppoll = sleep_in_world;
  hosts_ = std::make_unique<Hosts>();
  a_ = std::make_unique<Api>(hosts_->a, Side::kVireo);
  b_ = std::make_unique<Api>(hosts_->b, Side::kVireo);
  for (int side : {0, 1}) {
    api(side).host().enter();  // an engine keeps to the namespace in which it was made
    EXPECT_TRUE(api(side).host().stack().engine().has_value());
    looked_[side] = now();
  }
}

World::~World() {
  close_all();
  for (int side : {0, 1}) expect_nothing_lent(side);
  hosts_.reset();
  for (ibv_device* d : nics_) {
    const softnic_objects o = softnic_objects_of(d);
    EXPECT_EQ(o.contexts, 0U);
    EXPECT_EQ(o.domains, 0U);
    EXPECT_EQ(o.regions, 0U);
    EXPECT_EQ(o.channels, 0U);
    EXPECT_EQ(o.completion_queues, 0U);
    EXPECT_EQ(o.pairs, 0U);
    EXPECT_EQ(o.work_queues, 0U);
    EXPECT_EQ(o.by_command, 0U);
    EXPECT_EQ(o.matchers, 0U);
    EXPECT_EQ(o.tables, 0U);
    EXPECT_EQ(o.flows, 0U);
  }
  EXPECT_EQ(open_descriptors(), descriptors_);
  g_world = nullptr;
}

void World::close_all() {
  for (ibv_device* d : nics_) {
    softnic_set_link(d, true);
    softnic_hold(d, false);
    softnic_drop(d, 0);
    softnic_corrupt(d, 0);
    softnic_lose_events(d, 0);
    softnic_fail_sends(d, 0, IBV_WC_SUCCESS);
  }
  stopped_[0] = stopped_[1] = false;
  pass(Duration::ms(1));
  for (const Open& o : std::vector(open_)) {
    const linger none{1, 0};
    (void)api(o.side).setsockopt(o.fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(o.side, o.fd);
  }
  pass(Duration::s(3));  // TIME-WAIT is a second
}

/// The device is still open; a lost one has given all receives back.
void World::expect_nothing_lent(int side) {
  SCOPED_TRACE(side == 0 ? "host a" : "host b");
  size_t lent = 0;
  stack(side).for_each_engine([&](Engine& e) {
    SCOPED_TRACE(e.id().value());
    EXPECT_EQ(e.census(), Census{});
    EXPECT_EQ(e.wakeups().sleepers(), 0U);
    EXPECT_EQ(e.live_flows(), 0U);
    EXPECT_TRUE(e.next_deadline().is_never()) << "a timer is left";
    for (uint32_t i = 0; i < e.pool().size(); ++i) lent += e.pool().at(i).refs != 0 ? 1 : 0;
  });
  const softnic_objects o = softnic_objects_of(nic(side));
  EXPECT_EQ(o.flows, 0U);
  // A striding queue has runs of frames, of which those are in use that hold a packet.
  constexpr uint32_t kEnough = 32;  // frames, for four elements
  const bool strides = shape_.backend >= Backend::kStriding && shape_.rx_frames >= kEnough;
  if (!strides || shape_.backend != Backend::kLro) {
    EXPECT_EQ(o.by_command + o.matchers, 0U);
  }
  EXPECT_EQ(o.work_queues * 2, strides ? o.pairs : 0U) << "one to receive, one to send";
  EXPECT_EQ(lent, strides ? 0 : o.receives) << "frames";
}

// ---- time

Instant World::now() const { return g_clock.now(); }

bool World::turn_of(int side) {
  if (stopped_[side]) return false;
  const bool looks = now() - looked_[side] >= kHelperLooks;
  if (looks) looked_[side] = now();
  bool worked = false;
  stack(side).for_each_engine([&](Engine& e) { worked |= turn_of(e, looks); });
  return worked;
}

bool World::turn_of(Engine& e, bool looks) {
  // As the helper: who sleeps on the devices serves them, and a deadline that it misses is ours.
  const bool is_served = e.wakeups().sleepers() != 0 && now() - e.next_deadline() < kGrace;
  bool worked = !is_served && sock::poll_engine(e);
  if (looks && e.live_flows() != 0) {
    e.lock().lock();
    worked |= e.look_for_helper(now());
    e.unlock();
  }
  return worked;
}

bool World::turn() {
  g_clock.advance(kTurn);
  bool worked = false;
  for (int side : {0, 1}) {
    worked |= turn_of(side);
    if (shape_.backend != Backend::kVerbs) worked |= softnic_pump();
  }
  return worked;
}

void World::skip_idle(Instant end) {
  Instant next = end;
  for (int side : {0, 1}) {
    if (stopped_[side]) continue;
    stack(side).for_each_engine([&](Engine& e) {
      next = std::min(next, std::max(e.next_deadline(), now() + kStep));
      if (e.live_flows() != 0) next = std::min(next, looked_[side] + kHelperLooks);
    });
  }
  if (next > now()) g_clock.advance_to(next);
}

bool World::run(const std::function<bool()>& step, const std::function<bool()>& done,
                Duration bound) {
  const Instant end = now() + bound;
  while (!done()) {
    const bool stepped = step();
    if (!turn() && !stepped) skip_idle(end);
    if (now() >= end) return done();
  }
  return true;
}

void World::pass(Duration d) {
  run([] { return false; }, [] { return false; }, d);
}

void World::while_asleep(std::function<void()> what, Duration delay) {
  asleep_ = std::move(what);
  asleep_after_ = delay;
}

int World::sleep(pollfd* fds, nfds_t n, const timespec* timeout) {
  const Instant began = now();
  const Instant end = timeout == nullptr
                          ? Instant::never()
                          : began + Duration::s(timeout->tv_sec) + Duration::ns(timeout->tv_nsec);
  int ready = 0;
  for (;;) {
    ready = kernel::poll_now(fds, n);
    if (ready != 0 || now() >= end) break;
    Instant until = std::min(end, began + kForEver);
    if (asleep_ && now() - began >= asleep_after_) {
      std::exchange(asleep_, nullptr)();
      continue;
    }
    if (asleep_) until = std::min(until, began + asleep_after_);
    // A turn that took nothing in may have told the sleeper, or sent what wakes it.
    if (!turn() && kernel::poll_now(fds, n) == 0) skip_idle(until);
    if (now() - began >= kForEver) {
      ADD_FAILURE() << "a call sleeps for ever";
      std::abort();
    }
  }
  slept_ = slept_ + (now() - began);
  return ready;
}

// ---- sockets

int World::keep(int side, int fd) {
  EXPECT_GE(fd, 0);
  open_.push_back({side, fd});
  return fd;
}

void World::close(int side, int fd) {
  EXPECT_EQ(std::erase_if(open_, [&](const Open& o) { return o.fd == fd; }), 1U);
  EXPECT_EQ(api(side).close(fd), 0);
}

int World::listener(int side, uint16_t port, int type) {
  const int l = keep(side, api(side).socket(AF_INET, type));
  const int on = 1;
  EXPECT_EQ(api(side).setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  EXPECT_EQ(api(side).bind(l, port), 0);
  EXPECT_EQ(api(side).listen(l), 0);
  return l;
}

int World::udp(int side, uint16_t port) {
  const int u = keep(side, api(side).socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK));
  EXPECT_EQ(api(side).bind(u, port), 0);
  return u;
}

void World::connect_to(int side, int fd, uint16_t port) {
  const auto to = address(api(1 - side).host(), port);
  EXPECT_EQ(api(side).connect(fd, sockaddr_of(to), length(to)), 0);
}

int World::begin_connect(int side, uint16_t port) {
  const int c = keep(side, api(side).socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK));
  const auto to = address(api(1 - side).host(), port);
  EXPECT_EQ(api(side).connect(c, sockaddr_of(to), length(to)), -EINPROGRESS);
  return c;
}

std::pair<int, int> World::connection(uint16_t port) {
  const int l = listener(1, port, SOCK_STREAM);
  const int c = keep(0, a_->socket(AF_INET, SOCK_STREAM));
  connect_to(0, c, port);
  const int s = keep(1, b_->accept(l));
  EXPECT_TRUE(a_->is_carried(c) && b_->is_carried(s));
  close(1, l);
  return {c, s};
}

}  // namespace vireo::test

// NOLINTBEGIN: names that the linker makes
extern "C" {

int __real_clock_gettime(clockid_t, timespec*);
// Not hidden: libraries that the sanitizers instrument ask the time, too.
[[gnu::visibility("default")]] int __wrap_clock_gettime(clockid_t clock, timespec* t) {
  if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, t);
  const int64_t ns = vireo::test::g_clock.now().ns();
  *t = {ns / 1'000'000'000, ns % 1'000'000'000};
  return 0;
}

/// Clock::calibrate(): left undone, the time is clock_gettime's.
void __wrap__ZN5vireo5Clock9calibrateEv() {}
}
// NOLINTEND
