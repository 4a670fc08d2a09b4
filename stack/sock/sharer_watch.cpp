#include "stack/sock/sharer_watch.h"

#include <algorithm>

#include "stack/net/udp_diag.h"
#include "stack/sock/blocking.h"
#include "stack/sock/look_interval.h"
#include "stack/sock/stack.h"

namespace vireo {
namespace {

/// Sorted, to be compared.
std::vector<net::DiagSocket> sockets_at(uint16_t port) {
  auto found = net::udp_sockets(port);
  if (!found) return {};
  std::ranges::sort(*found, {}, &net::DiagSocket::cookie);
  return std::move(*found);
}

}  // namespace

void SharerWatch::keep_others(const Port& p, std::vector<net::DiagSocket>& there) noexcept {
  std::erase_if(there, [&](const net::DiagSocket& s) {
    return std::ranges::find(p.ours, s.cookie) != p.ours.end();
  });
}

std::vector<net::DiagSocket> SharerWatch::look(uint16_t port) {
  auto there = sockets_at(port);
  const LockGuard guard(lock_);
  const auto p = std::ranges::find(ports_, port, &Port::number);
  if (p != ports_.end()) {
    keep_others(*p, there);
    p->there = there;
  }
  return there;
}

bool SharerWatch::begin(uint16_t port, uint64_t cookie) {
  const LockGuard guard(lock_);
  const auto p = std::ranges::find(ports_, port, &Port::number);
  if (p != ports_.end()) {
    p->ours.push_back(cookie);
    return false;
  }
  ports_.push_back({port, {cookie}, {}});
  return !is_active_.exchange(true, std::memory_order_relaxed);
}

bool SharerWatch::end(uint16_t port, uint64_t cookie) noexcept {
  const LockGuard guard(lock_);
  const auto p = std::ranges::find(ports_, port, &Port::number);
  if (p == ports_.end()) return false;
  if (const auto c = std::ranges::find(p->ours, cookie); c != p->ours.end()) p->ours.erase(c);
  if (!p->ours.empty()) return false;
  ports_.erase(p);
  is_active_.store(!ports_.empty(), std::memory_order_relaxed);
  return true;
}

Duration SharerWatch::tend(const Stack& stack, Instant now) {
  if (!is_active()) return Duration::max();
  if (now < due_) return due_ - now;
  std::vector<uint16_t> ports;
  {
    const LockGuard guard(lock_);
    for (const Port& p : ports_) ports.push_back(p.number);
  }
  const LookInterval interval;
  for (const uint16_t port : ports) {
    auto there = sockets_at(port);
    {
      const LockGuard guard(lock_);
      const auto p = std::ranges::find(ports_, port, &Port::number);
      if (p == ports_.end()) continue;
      keep_others(*p, there);
      if (p->there == there) continue;
      p->there = there;
    }
    stack.for_each_engine([&](Engine& e) {
      const EngineGuard guard(e);
      e.udp().heed_sharers(port, there);
    });
  }
  due_ = now + interval.next();
  return due_ - now;
}

void SharerWatch::fork_child() noexcept {
  lock_.reset_after_fork();
  ports_.clear();
  is_active_.store(false, std::memory_order_relaxed);
  due_ = {};
}

}  // namespace vireo
