// Chooses an engine for a socket, and makes another where the interfaces have queues for it.
#include "stack/sock/rings.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/arena.h"
#include "core/log.h"
#include "stack/sock/blocking.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/stack.h"

namespace vireo {
namespace {

unsigned most_of(const Settings& s) {
  switch (s.ring_allocation_logic_rx) {
    case RingLogic::kInterface:
    case RingLogic::kUserId:  // no call sets a user id: all have the same
      return 1;
    case RingLogic::kIp:
    case RingLogic::kSocket:
    case RingLogic::kThread:
    case RingLogic::kCore:
    case RingLogic::kCoreAttach:
      break;
  }
  const auto limit = static_cast<unsigned>(s.ring_limit_per_interface);
  return limit == 0 ? Rings::kMax : std::min(limit, Rings::kMax);
}

/// The processor that the calling thread was attached to, -1: none.
[[gnu::tls_model("initial-exec")]] thread_local constinit int t_processor = -1;

}  // namespace

Rings::Rings(const Settings& s) : logic_(s.ring_allocation_logic_rx), most_(most_of(s)) {
  forget();
}

size_t Rings::arena_bytes(const Settings& s) const {
  const size_t all = s.arena_bytes;
  const size_t part = all / most_ / Arena::kHugePageBytes * Arena::kHugePageBytes;
  return std::max(part, std::min(all, kMinArena));
}

std::optional<uint64_t> Rings::key_of_caller(const IpAddr& source) {
  switch (logic_) {
    case RingLogic::kInterface:
    case RingLogic::kUserId:
      return 0;
    case RingLogic::kIp: {
      const auto& b = source.bytes();
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(b.data()), b.size()});
    }
    case RingLogic::kSocket:
      return std::nullopt;
    case RingLogic::kThread:
      return static_cast<uint64_t>(::gettid());
    case RingLogic::kCore:
      return static_cast<uint64_t>(std::max(::sched_getcpu(), 0));
    case RingLogic::kCoreAttach:
      return static_cast<uint64_t>(attach());
  }
  return 0;
}

/// Attaches the calling thread to one processor: of those that it may use, the one with the fewest
/// threads attached. @return which.
int Rings::attach() {
  if (t_processor >= 0) return t_processor;
  cpu_set_t may;
  if (::sched_getaffinity(0, sizeof may, &may) != 0) return t_processor = 0;
  attached_.resize(CPU_SETSIZE);
  int best = -1;
  for (int c = 0; c < CPU_SETSIZE; ++c) {
    const auto at = static_cast<size_t>(c);
    if (CPU_ISSET(at, &may) && (best < 0 || attached_[at] < attached_[static_cast<size_t>(best)]))
      best = c;
  }
  if (best < 0) return t_processor = 0;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<size_t>(best), &only);
  if (::sched_setaffinity(0, sizeof only, &only) == 0) ++attached_[static_cast<size_t>(best)];
  return t_processor = best;
}

// ---- the stack's part

namespace {

Carried<Reach> reach(Engine& e, const Placing& p) {
  const EngineGuard guard(e);
  return p.way != nullptr ? e.next_hops().reach(*p.way) : e.ports().reach(p.local.addr);
}

}  // namespace

Carried<Engine*> Stack::place(const Placing& p) {
  const auto made = engine();
  if (!made) return made;
  Engine& first = **made;
  const auto here = reach(first, p);
  if (!here) return &first;  // it will return the reason
  const LockGuard guard(life_lock_);
  if (!here->reopens) {
    // Several profiles ask for rings on any host: no fault, and nothing to fix.
    if (!std::exchange(said_one_ring_, true))
      log<LogLevel::kInfo>(
          "VMA_RING_ALLOCATION_LOGIC_RX: one ring, for the interface has one queue");
    return &first;
  }
  // The kernel lets such sockets share a port; a device would give every frame for it to each ring.
  if (p.shares_port && !p.local.addr.is_multicast())
    if (Engine* const e = home_of(p)) return e;
  const Instant now = Clock::now();
  const unsigned count = engine_count();
  const auto key = rings_.key_of_caller(here->source);
  unsigned ring = rings_.choose(key, count, now, [&](unsigned i) VIREO_NO_THREAD_ANALYSIS {
    Engine& e = *engines_[i];
    if (!e.try_acquire()) return false;
    const bool is_unused = e.is_unused();
    e.unlock();
    return is_unused;
  });
  if (ring == count && !make_ring(p, *here)) {
    rings_.limit_to(count);
    ring = rings_.choose(key, count, now, [](unsigned) { return false; });
  }
  Engine* e = engines_[ring].get();
  if (ring != 0) {
    const auto there = reach(*e, p);
    if (!there || there->ports < here->ports) {
      say_one_ring(there ? "not all interfaces have room for one more" : there.error().where);
      e = &first;
    }
  }
  if (p.shares_port) homes_.push_back({p.proto, p.local.port, now, e});
  return e;
}

/// The engine that has, or is about to have, a socket of this port. Holder of life_lock_.
Engine* Stack::home_of(const Placing& p) {
  const Instant now = Clock::now();
  std::erase_if(homes_, [&](const Home& h) { return now - h.at >= Rings::kUnsettled; });
  for (const Home& h : homes_)
    if (h.proto == p.proto && h.port == p.local.port) return h.engine;
  for (unsigned i = 0; i < engine_count(); ++i) {
    const EngineGuard guard(*engines_[i]);
    if (engines_[i]->has_bound(p.proto, p.local.port)) return engines_[i].get();
  }
  return nullptr;
}

/// Makes the next ring and opens the same interfaces as the first. Holder of life_lock_. @return
/// false: it could not.
bool Stack::make_ring(const Placing& p, const Reach& wanted) {
  if (!net_namespace::is_thread_home()) [[unlikely]]
    return false;
  const unsigned ring = engine_count();
  auto made = create_engine(ring);
  if (!made) {
    say_one_ring(made.error().where);
    return false;
  }
  const auto there = reach(**made, p);
  if (!there || there->ports < wanted.ports) {
    stats().engines[ring].pool_size.set(0);  // it never existed
    say_one_ring(there ? "not all interfaces have room for one more" : there.error().where);
    return false;
  }
  if (helper_) helper_->serve_too(**made);
  engines_[ring] = std::move(*made);
  // Pairs with the acquire in engine_count().
  engine_count_.store(ring + 1, std::memory_order_release);
  tell_of_filter(*engines_[ring]);
  log<LogLevel::kInfo>("ring {} of at most {}", ring + 1, rings_.most());
  return true;
}

/// Logs once that the requested rings cannot be made. Holder of life_lock_.
void Stack::say_one_ring(const char* why) {
  if (std::exchange(said_one_ring_, true)) return;
  log<LogLevel::kWarn>(
      "VMA_RING_ALLOCATION_LOGIC_RX: sockets share rings, of which there are {}: {}",
      engine_count(), why);
}

}  // namespace vireo
