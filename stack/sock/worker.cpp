#include "stack/sock/worker.h"

#include "stack/sock/blocking.h"
#include "stack/sock/stack.h"

namespace vireo {
namespace {

/// How long a program may be busy before it gets no more SYNs.
constexpr Duration kBusy = Duration::ms(20);
/// While it waits, its helper says so again. A stopped process has none.
constexpr Duration kWaiting = Duration::ms(1500);
constexpr Duration kSayEvery = Duration::ms(500);
/// What was said need not be exact.
constexpr Duration kExact = Duration::ms(2);

}  // namespace

bool Worker::accepted(File& f) noexcept {
  f.tcp.is_workers = true;
  return open_.fetch_add(1, std::memory_order_relaxed) != 0 &&
         f.stack->settings().promote == PromoteChoice::kAtAccept &&
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
  if (!waits_.load(std::memory_order_relaxed)) return kSayEvery;
  accept_until(now + kWaiting);
  if (!waits_.load(std::memory_order_relaxed)) accept_until(now + kBusy);
  return kSayEvery;
}

void Worker::fork_child() noexcept {
  open_.store(0, std::memory_order_relaxed);
  may_join_.store(true, std::memory_order_relaxed);
  engine_.store(nullptr, std::memory_order_relaxed);
  waits_.store(false, std::memory_order_relaxed);
}

}  // namespace vireo
