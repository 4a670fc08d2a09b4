#include "stack/sock/worker.h"

#include "stack/sock/blocking.h"
#include "stack/sock/stack.h"

namespace vireo {
namespace {

/// How long a program may be busy before it gets no more SYNs.
constexpr Duration kBusy = Duration::ms(20);
/// While it waits, its helper says so again when a third is over. A stopped process has none.
constexpr Duration kWaiting = Duration::ms(1500);
constexpr Duration kSayEvery = Duration::ms(500);
/// How often the helper looks whether connections wait in vain.
constexpr Duration kLookEvery = Duration::ms(100);
/// What was said need not be exact.
constexpr Duration kExact = Duration::ms(2);

}  // namespace

bool Worker::accepted(File& f) noexcept {
  f.tcp.is_workers = true;
  return open_.fetch_add(1, std::memory_order_relaxed) != 0 &&
         f.stack->settings().promote != PromoteChoice::kNever &&
         may_join_.load(std::memory_order_relaxed);
}

void Worker::accept_until(Instant until) noexcept {
  Engine* const e = engine_.load(std::memory_order_acquire);
  if (e == nullptr) return;
  until_ns_.store(until.ns(), std::memory_order_relaxed);
  const EngineGuard guard(*e);
  e->listeners().accept_until(until);
}

void Worker::waits(Instant now) noexcept {
  waits_.store(true, std::memory_order_relaxed);
  gave_.store(false, std::memory_order_relaxed);
  accept_until(now + kWaiting);
}

void Worker::returns(Instant now) noexcept {
  const bool waited = waits_.exchange(false, std::memory_order_relaxed);
  const int64_t said = until_ns_.load(std::memory_order_relaxed);
  if (!waited && (now + kBusy).ns() - said < kExact.ns()) return;
  accept_until(now + kBusy);
}

Duration Worker::tend(Instant now) noexcept {
  if (!has_joined()) return Duration::max();
  const Instant until = Instant::from_ns(until_ns_.load(std::memory_order_relaxed));
  if (waits_.load(std::memory_order_relaxed)) {
    if (until - now > kWaiting - kSayEvery) return kLookEvery;
    accept_until(now + kWaiting);
    if (!waits_.load(std::memory_order_relaxed)) accept_until(now + kBusy);
  } else if (now > until && !gave_.exchange(true, std::memory_order_relaxed)) {
    Engine& e = *engine_.load(std::memory_order_acquire);
    const EngineGuard guard(e);
    e.poll(now);  // nobody else does
    if (!e.listeners().give_waiting(now)) gave_.store(false, std::memory_order_relaxed);
  }
  return kLookEvery;
}

void Worker::fork_child() noexcept {
  open_.store(0, std::memory_order_relaxed);
  may_join_.store(true, std::memory_order_relaxed);
  engine_.store(nullptr, std::memory_order_relaxed);
  waits_.store(false, std::memory_order_relaxed);
  gave_.store(false, std::memory_order_relaxed);
}

}  // namespace vireo
