// The engine's turn: what one poll() does, in the order of who waits for it.
#include "stack/engine/engine.h"

#include <algorithm>

namespace vireo {
namespace {

/// Those who wait for a neighbour try again this often, beside whenever the kernel's tables change.
constexpr Duration kRetryWaiters = Duration::ms(50);
/// Of a row of turns that find nothing the first does the books, and every so many after it.
constexpr unsigned kLullTurns = 8;

/// Answers that strangers can provoke in an average second.
constexpr uint32_t kResetsPerSecond = 1000;
constexpr uint32_t kChallengesPerSecond = 1000;

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(EngineId id, const EngineConfig& config,
                                               DeviceOpener opener, net::Mirror& mirror,
                                               const EngineEvents& events, EngineStats& stats) {
  auto arena = Arena::create(config.arena_bytes, config.huge_pages);
  if (!arena) return std::unexpected(arena.error());
  Clock::calibrate();
  return std::unique_ptr<Engine>(
      new Engine(id, config, std::move(opener), mirror, events, stats, std::move(*arena)));
}

Engine::Engine(EngineId id, const EngineConfig& config, DeviceOpener opener, net::Mirror& mirror,
               const EngineEvents& events, EngineStats& stats, Arena arena)
    : id_(id),
      config_(config),
      opener_(std::move(opener)),
      mirror_(mirror),
      reader_(mirror.store()),
      net_generation_(reader_.generation()),
      events_(events),
      stats_(stats),
      arena_(std::move(arena)),
      pool_(std::make_unique<PacketPool>(arena_.bytes(), config.frame_bytes)),
      low_water_(pool_->size() / 16),
      short_below_(2 * low_water_ + kBurst),
      uneasy_below_(short_below_),
      resets_(kResetsPerSecond),
      challenges_(kChallengesPerSecond),
      reassembly_(pool_->size() / 8),
      wheel_(Clock::now()),
      leases_(config.port_leases) {
  secret_ = config.secret.k0 != 0 ? config.secret : tcp::IsnSecret::random();
  stats_.pool_size.set(pool_->size());
}

Engine::~Engine() {
  tcp_.for_each([&](TcpFlow& f) { free_tcp(f); });
  for (Listener* l : listeners_)  // after the flows: none needs a rule of its own any more
    if (l != nullptr) tcp_close_listener(*l, Clock::now());
  udp_.for_each([&](UdpFlow& u) { udp_close(u); });
  time_waits_.for_each([&](TimeWaitEntry& e) { drop_time_wait(e); });
  leases_.give_up(0);
  for (RxDesc& d : burst_) d.packet.reset();
  partial_.reset();
  partial_rest_.clear();
  reassembly_.clear();
  owned_ports_.clear();  // devices and queues return their frames before the pool ends
}

/// Of what waits in a queue the first `n`, which are in burst_, and perhaps more. @return frames.
inline unsigned Engine::receive_first(Port& port, Queue& queue, unsigned n, Instant now) noexcept {
  if (n == 0) return 0;
  if (n != 1 || !is_single(burst_[0].flags)) [[unlikely]]
    return receive_many(port, queue, n, now);
  if (!receive_plain(burst_[0], true, now)) [[unlikely]]
    receive_frame(port, burst_[0], {}, now);
  return 1;
}

/// From the queues from `first` on. @return frames.
[[gnu::noinline]] unsigned Engine::receive_all(size_t first, Instant now) noexcept {
  unsigned frames = 0;
  for (size_t i = first; i < polled_.size(); ++i) {  // a frame may open another port
    const Polled from = polled_[i];
    frames += receive_first(*from.port, *from.queue, from.queue->rx_burst(burst_), now);
  }
  return frames;
}

// Out of line with the address of the lock, which is else made for each call, taken or not.
[[gnu::noinline]] void Engine::take_lock_plain() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
[[gnu::noinline]] void Engine::unlock_plain() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }

bool Engine::turn(Instant now) noexcept {
  ring_if_due(now);
  unsigned frames = 0;
  size_t done = 0;
  if (only_.queue != nullptr) [[likely]] {
    const Polled from = only_;
    frames = receive_first(*from.port, *from.queue, from.queue->rx_burst(burst_), now);
    done = 1;
  }
  if (only_.queue == nullptr) [[unlikely]]
    frames += receive_all(done, now);
  return end_turn(now, frames);
}

/// turn() of poll_to_return() whose only queue has given the first `n` frames.
bool Engine::go_on_to_return(Instant now, unsigned n) noexcept {
  poll_of_ = polls_for_;
  ring_if_due(now);
  const Polled from = only_;
  unsigned frames = receive_first(*from.port, *from.queue, n, now);
  if (only_.queue == nullptr) [[unlikely]]
    frames += receive_all(1, now);
  const bool is_worked = end_turn(now, frames);
  poll_of_ = PollOf::kNobody;
  return is_worked;
}

/// The rest of a turn that found `frames`.
[[gnu::always_inline]] inline bool Engine::end_turn(Instant now, unsigned frames) noexcept {
  if (is_quiet(now)) [[likely]] {
    if (frames != 0) {
      if (!deadlines_moved_ && frames_unbooked_ + frames < kMostUnbooked) [[likely]] {
        frames_unbooked_ += frames;
        lull_ = 0;
        stats_.polls.add();
        return true;
      }
    } else if (lull_ % kLullTurns != 0) [[likely]] {
      ++lull_;
      stats_.polls.add();
      stats_.empty_polls.add();
      return false;
    }
  }
  return full_turn(now, frames);
}

/// All of a turn that found `frames`.
bool Engine::full_turn(Instant now, unsigned frames) noexcept {
  const bool is_worked = frames != 0;
  if (pool_->free_count() <= short_below_) [[unlikely]]
    run_short(now);
  else if (pool_->window_share() != PacketPool::kNoShare) [[unlikely]]
    widen_windows(now);
  if (corked_ != nullptr) [[unlikely]]
    uncork();
  const bool is_due = now.ns() >= deadline_.load(std::memory_order_relaxed);
  stats_.polls.add();
  if (!is_worked && !is_due && lull_++ % kLullTurns != 0) [[unlikely]] {
    stats_.empty_polls.add();
    return false;
  }
  if (is_due) [[unlikely]] {
    deadlines_moved_ = true;
    run_timers(now);
    expire_time_waits(now);
    expire_records(now);
    expire_path_mtus(now);
    expire_fragments(now);
    if (now - waiters_retried_ >= kRetryWaiters) retry_waiters(now);
  }
  frames_unbooked_ += frames;
  if (is_worked)
    lull_ = 0;
  else
    idle(now);
  if (frames_unbooked_ >= kMostUnbooked) [[unlikely]]
    reap_and_refill();
  if (!pending_.empty() || !riding_.empty()) {
    if (poll_of_ != PollOf::kNobody)
      flush_pending_to_return(now);
    else
      flush_pending(now);
  }
  if (!notify_.empty() || !notify_udp_.empty()) deliver_events(now);
  if (deadlines_moved_ || !is_worked) publish_deadline(now);
  return is_worked;
}

/// Books that nobody waits for.
void Engine::idle(Instant now) noexcept {
  stats_.empty_polls.add();
  reap_and_refill();
  reader_.quiesce();
  if (reader_.generation() != net_generation_) [[unlikely]]
    heed_tables(now);
  stats_.pool_free.set(pool_->free_count());
}

void Engine::heed_tables(Instant now) noexcept {
  net_generation_ = reader_.generation();
  follow_host();
  retry_waiters(now);
}

void Engine::reap_and_refill() noexcept {
  frames_unbooked_ = 0;
  for (Port* p : ports_)
    for (auto& q : p->queues) {
      q->tx_reap();
      q->rx_refill();
    }
}

void Engine::publish_deadline(Instant now) noexcept {
  deadlines_moved_ = !riding_.empty();  // the next turn counts for their ride
  Instant d = std::min(wheel_.next_deadline(), pmtu_.first_expiry());
  d = std::min(d, reassembly_.first_expiry());
  if (!time_wait_queue_.empty()) d = std::min(d, time_wait_queue_.front().until);
  d = std::min(d, syns_.next_deadline());
  if (!stalled_.empty()) d = std::min(d, waiters_retried_ + kRetryWaiters);
  if (!riding_.empty()) d = std::min(d, now + config_.helper_grace);
  if (!pending_.empty() || !notify_.empty() || !notify_udp_.empty() || corked_ != nullptr ||
      unrung_ != 0)
    d = now;
  // Relaxed: a reader that sees the old one is woken by what made the new one, or looks within its
  // grace.
  if (d.ns() != deadline_.load(std::memory_order_relaxed)) {
    deadline_.store(d.ns(), std::memory_order_relaxed);
    ring_helper_before(d);
  }
}

void Engine::ring_helper_before(Instant d) noexcept {
  // seq_cst pairs with set_helper_sleep(): either the helper sees the new deadline or flow, or we
  // its sleep.
  if (d.ns() >= helper_sleeps_until_.load(std::memory_order_seq_cst)) [[likely]]
    return;
  if (helper_sleeps_until_.exchange(0, std::memory_order_seq_cst) != 0) helper_bell_->signal();
}

void Engine::count_flow() noexcept {
  if (flow_count_.fetch_add(1, std::memory_order_seq_cst) == 0) ring_helper_before(Instant());
}

// ---- facts

Census Engine::census() const noexcept {
  const auto count = [](const auto& list) { return static_cast<uint32_t>(list.size()); };
  return {.connections = tcp_.size(),
          .orphans = count(orphans_),
          .waiting = count(pending_) + count(riding_) + count(stalled_) + count(notify_),
          .half_open = count(syns_),
          .time_waits = time_waits_.size(),
          .listeners = static_cast<uint32_t>(
              listeners_.size() - static_cast<size_t>(std::ranges::count(listeners_, nullptr))),
          .demux_keys = count(demux_)};
}

bool Engine::is_unused() const noexcept {
  return tcp_.size() == orphan_count_ && udp_.size() == 0 &&
         std::ranges::all_of(listeners_, [](const Listener* l) { return l == nullptr; });
}

bool Engine::has_bound(IpProto proto, uint16_t port) noexcept {
  if (proto == IpProto::kTcp)
    return std::ranges::any_of(
        listeners_, [&](const Listener* l) { return l != nullptr && l->key.local.port == port; });
  bool any = false;
  udp_.for_each([&](const UdpFlow& u) { any |= u.key.local.port == port; });
  return any;
}

// ---- all queues

void Engine::tx_flush() noexcept {
  for (Port* p : ports_)
    for (auto& q : p->queues) q->tx_flush();
}

/// What Doorbell::kLater left.
[[gnu::noinline]] void Engine::ring_left() noexcept {
  unrung_ = 0;
  if (answers_.open != 0) answers_.open = 1;
  if (corked_ == nullptr) end_watch();
  tx_flush();
}

void Engine::queue_reap() noexcept {
  for (Port* p : ports_)
    for (auto& q : p->queues) q->tx_reap();
}

bool Engine::arm_all() noexcept {
  for (Port* p : ports_) {
    if (p->dead) continue;
    for (auto& q : p->queues) {
      q->tx_reap();
      q->rx_refill();
      const auto is_armed = q->arm();
      if (!is_armed) {
        lose_port(*p);
        return false;  // there is something to tell
      }
      if (!*is_armed) return false;
    }
  }
  return true;
}

void Engine::wake_ack_all() noexcept {
  const bool others_sleep = sleepers() != 0;
  for (Port* p : ports_)
    for (auto& q : p->queues) {
      q->wake_ack();
      // What is there already this thread's next poll finds, and whether the device is.
      if (others_sleep) (void)q->arm();
    }
}

bool Engine::begin_sleep() noexcept {
  lull_ = 0;  // whoever wakes looks at everything
  if (!riding_.empty()) flush_pending(Clock::now());
  if ((unrung_ | answers_.open) != 0) ring_left();  // another thread's
  if (!arm_all()) return false;
  stats_.sleeps.add();
  sleepers_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Engine::end_sleep() noexcept {
  // seq_cst pairs with set_helper_sleep(): either the helper sees the count, or we see its sleep.
  if (sleepers_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  ring_helper_before(Clock::now() + config_.helper_grace);
}

}  // namespace vireo
