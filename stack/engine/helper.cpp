#include "stack/engine/helper.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "core/own_thread.h"
#include "stack/net/tcp_diag.h"

namespace vireo {
namespace {

/// Consecutive turns for a silent program before checking again whether another thread wants the
/// lock.
constexpr unsigned kTurns = 8;
/// A program that sleeps in our calls for longer than this must ring the bell when it wakes; one
/// that wakes more often does without.
constexpr int64_t kGracesToPark = 4;
/// The longer a program has polled, the later the next look: after this part of that time, at most
/// kMaxGraces. The end of its polling is noticed that much later.
constexpr int64_t kPartOfPolled = 8;
constexpr int64_t kMaxGraces = 10;
/// How long after the last held data the helper keeps looking for more: the program will probably
/// hold data again, and ringing the bell each time would cost it more than these looks. Interval of
/// the looks: part of the time so far, as for a program that polls.
constexpr Duration kWatchCorks = Duration::ms(1);
constexpr Duration kMinLookAtCork = Duration::us(20);
constexpr Duration kMaxLookAtCork = Duration::us(400);
/// Interval of the check that devices exist, while there are flows.
constexpr Duration kLookAfterPorts = Duration::s(1);
/// Time limit for queries of the kernel's connections; the query that passes it is finished.
constexpr Duration kAskKernel = Duration::ms(2);
/// Interval of asking the mirror to free what readers have released.
constexpr Duration kFreeSnapshots = Duration::s(1);

}  // namespace

Result<std::unique_ptr<Helper>> Helper::start(Engine& engine, net::Mirror& mirror,
                                              const Options& options) {
  auto bell = EventFd::create();
  if (!bell) return std::unexpected(bell.error());
  std::unique_ptr<Helper> h(new Helper(engine, mirror, options, std::move(*bell)));
  engine.wakeups().set_helper_bell(&h->bell_);
  pthread_t thread;
  const int e = start_own_thread(
      thread,
      [](void* self) -> void* {
        static_cast<Helper*>(self)->run();
        return nullptr;
      },
      h.get());
  if (e != 0) return fail(e, "pthread_create");
  h->thread_ = thread;
  h->is_running_ = true;
  pthread_setname_np(thread, "vireo");
  if (!options.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int c : options.cpus) CPU_SET(static_cast<size_t>(c), &set);
    pthread_setaffinity_np(thread, sizeof set, &set);
  }
  return h;
}

Helper::Helper(Engine& engine, net::Mirror& mirror, const Options& options, EventFd bell)
    : mirror_(mirror), grace_(options.grace), errands_(options.errands), bell_(std::move(bell)) {
  served_[0].engine = &engine;
  count_.store(1, std::memory_order_relaxed);  // the thread is started later
}

void Helper::serve_too(Engine& engine) noexcept {
  engine.wakeups().set_helper_bell(&bell_);
  const unsigned n = count_.load(std::memory_order_relaxed);
  VIREO_ASSERT(n < served_.size());
  served_[n].engine = &engine;
  count_.store(n + 1, std::memory_order_release);  // pairs with the acquire in served()
  wake();
}

Helper::~Helper() {
  if (!is_running_) return;
  stop_.store(true, std::memory_order_relaxed);  // ordered by the bell's system calls
  bell_.signal();
  pthread_join(thread_, nullptr);
}

void Helper::run() noexcept {
  BiasedLock::visit_only();
  ::prctl(PR_SET_TIMERSLACK, 1000);  // the default of 50 us is as long as data may be corked
  Instant serve_at{};
  while (!stop_.load(std::memory_order_relaxed)) {
    const Instant now = Clock::now();
    if (is_mirror_due_ || now - mirrored_ >= kFreeSnapshots) {
      mirrored_ = now;
      if (mirror_.process())
        for (Served& s : served()) heed_tables(*s.engine);
    }
    const Duration until_errand = run_errands(now);
    Duration d = serve_at - now;
    if (rang_ || d <= Duration()) {  // not at each wake-up for corked data
      d = Duration::max();
      for (Served& s : served()) d = std::min(d, serve(s, now));
      serve_at = now + std::min(d, grace_);
    }
    for (Served& s : served()) d = std::min(d, watch_cork(s, now));
    sleep(now, std::min(d, until_errand));
  }
}

/// @return when the next one is due.
Duration Helper::run_errands(Instant now) noexcept {
  Duration next = Duration::max();
  for (size_t i = 0; i < kErrands; ++i) {
    const Errand& e = errands_[i];
    if (std::exchange(is_errand_due_[i], false)) e.ready(e.self);
    if (e.tend != nullptr) next = std::min(next, e.tend(e.self, now));
  }
  return next;
}

/// A program that polls notices the change itself.
void Helper::heed_tables(Engine& e) noexcept {
  if (e.live_flows() == 0 || !e.try_acquire()) return;
  e.heed_tables(Clock::now());
  e.unlock();
}

/// Without the engine's lock while the kernel searches. The remaining ports are left to the next
/// look: other tasks wait for this thread.
void Helper::ask_kernel(Engine& e) noexcept {
  std::vector<IpAddr> own;
  for (const Instant begin = Clock::now(); Clock::now() - begin < kAskKernel;) {
    if (!e.try_acquire()) return;  // the next look will do
    const auto q = e.steering().to_ask(Clock::now(), own);
    e.unlock();
    if (!q) return;
    const auto some = net::any_tcp(q->port, [&](const IpAddr&, const IpAddr& remote) {
      return !remote.is_loopback() && std::ranges::find(own, remote) == own.end();
    });
    e.acquire();
    e.steering().kernel_said(*q, some.value_or(true), Clock::now());
    e.unlock();
  }
}

Duration Helper::serve(Served& s, Instant now) noexcept {
  Engine& e = *s.engine;
  s.watch_devices = s.is_polled = false;
  const Instant polled_since = std::exchange(s.polled_since, now);
  const Duration silent = now - e.last_poll();
  const auto look_seldom = [&] {
    s.is_polled = true;
    // If the program stops while frames wait for another doorbell, the helper must ring.
    const uint64_t shared = e.stats().shared_doorbells.get();
    if (std::exchange(s.shared_doorbells, shared) != shared) return grace_;
    s.polled_since = polled_since;
    const Duration part = Duration::ns((now - polled_since).ns() / kPartOfPolled);
    return std::clamp(part, grace_, grace_ * kMaxGraces);
  };
  if (e.live_flows() == 0) {
    if (e.try_acquire()) {
      e.forget_snapshot();
      e.unlock();
    }
    // A program that polls and serves one connection after the other would else ring the bell for
    // each.
    return silent < grace_ ? look_seldom() - silent : Duration::max();
  }
  if (now - s.looked >= kLookAfterPorts && e.try_acquire()) {
    s.looked = now;
    e.look_for_helper(Clock::now());
    e.unlock();
    ask_kernel(e);
  }
  const Instant due = e.next_deadline();
  if (e.wakeups().sleepers() != 0 && now - due < grace_) {
    // Threads of the program sleep on the devices and will serve them; the helper handles only a
    // deadline that they missed.
    if (silent < grace_ * kGracesToPark) return look_seldom();
    return due.is_never() ? Duration::max() : std::max(due - now, Duration()) + grace_;
  }
  if (silent < grace_) return look_seldom() - silent;
  for (unsigned i = 0; i < kTurns; ++i) {
    if (!e.try_acquire()) return grace_;
    const bool is_worked = e.poll_for_helper(Clock::now());
    const bool is_armed = !is_worked && e.ports().arm_all();
    e.stats().helper_polls.add();
    const Instant deadline = e.next_deadline();
    if (is_armed) s.device_fds.assign(e.ports().wait_fds().begin(), e.ports().wait_fds().end());
    e.unlock();
    if (is_worked || !is_armed) continue;
    s.watch_devices = true;
    if (deadline.is_never()) return Duration::max();
    return std::max(deadline - Clock::now(), Duration());
  }
  return Duration();
}

Duration Helper::watch_cork(Served& s, Instant now) noexcept {
  Engine& e = *s.engine;
  if (!e.doorbells().is_cork_watched()) return Duration::max();
  if (!std::exchange(s.watches_corks, true)) s.corks_since = s.corked = now;
  const Duration part = Duration::ns((now - s.corks_since).ns() / kPartOfPolled);
  const Duration look = std::clamp(part, kMinLookAtCork, kMaxLookAtCork);
  const uint64_t sent = e.stats().tx_packets.get();
  const bool is_sending = std::exchange(s.sent, sent) != sent;
  const Instant until = e.doorbells().corked_until();
  if (!until.is_never()) {
    s.corked = now;
    if (until > now) return std::max(until - now, look);
  } else if (now - s.corked >= kWatchCorks) {
    s.watches_corks = !e.doorbells().end_cork_watch();
    if (!s.watches_corks) return Duration::max();
  } else if (is_sending || now - e.last_poll() < look) {
    return look;
  }
  // It stopped sending: sends what waits, and what the resulting ACKs allow.
  if (e.try_acquire()) {
    e.poll_for_helper(Clock::now());
    e.stats().helper_polls.add();
    s.sent = e.stats().tx_packets.get();  // sent by the helper, not by the program
    e.unlock();
  }
  return look;
}

void Helper::sleep(Instant now, Duration d) noexcept {
  const std::span<Served> all = served();
  const auto is_live = [](const Served& s) { return s.engine->live_flows() != 0; };
  if (std::ranges::any_of(all, is_live)) d = std::min(d, kLookAfterPorts);
  const Instant until = d == Duration::max() ? Instant::never() : now + d;
  for (Served& s : all) s.engine->wakeups().set_helper_sleep(s.is_polled ? Instant() : until);
  // A change before set_helper_sleep() did not ring the bell: look once more.
  for (const Served& s : all) {
    const bool is_served = s.watch_devices || s.engine->wakeups().sleepers() != 0;
    if (d > grace_ && !s.is_polled && is_live(s) &&
        (!is_served || s.engine->next_deadline() - now + grace_ < d))
      d = grace_;
  }
  poll_fds_.assign({{bell_.fd(), POLLIN, 0}, {mirror_.fd(), POLLIN, 0}});
  for (const Errand& e : errands_) poll_fds_.push_back({e.fd, POLLIN, 0});
  for (const Served& s : all)
    if (s.watch_devices)
      for (int fd : s.device_fds) poll_fds_.push_back({fd, POLLIN, 0});
  const int64_t ns = std::max<int64_t>(d.ns(), 0);
  const timespec ts{ns / 1'000'000'000, ns % 1'000'000'000};
  // A raw system call: ppoll() may be the interposed one.
  ::syscall(SYS_ppoll, poll_fds_.data(), poll_fds_.size(), d == Duration::max() ? nullptr : &ts,
            nullptr, size_t{0});
  for (Served& s : all) s.engine->wakeups().set_helper_sleep(Instant());
  // Reads only descriptors that are readable: while the program polls, this thread wakes each grace
  // on the program's processor just to check the time.
  rang_ = std::ranges::any_of(poll_fds_, [](const pollfd& p) { return p.revents != 0; });
  if (poll_fds_[0].revents != 0) bell_.drain();
  is_mirror_due_ = poll_fds_[1].revents != 0;
  for (size_t i = 0; i < kErrands; ++i) is_errand_due_[i] = poll_fds_[2 + i].revents != 0;
}

}  // namespace vireo
