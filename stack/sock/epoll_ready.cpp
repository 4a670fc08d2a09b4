// What an epoll reports: takes items off the ready list, reads their level, and returns it to the
// program.
#include <algorithm>

#include "core/user_memory.h"
#include "stack/sock/blocking.h"
#include "stack/sock/epoll.h"
#include "stack/sock/multiplex.h"

namespace vireo {

/// The events to report now; 0: none, or no longer any. `ours`: some are from Vireo's side.
uint32_t Epoll::evaluate(Item& i, sock::EngineHold& hold, bool& ours) noexcept {
  ours = false;
  if (i.disarmed) return 0;
  uint32_t bits = 0;
  if (i.is_epoll) [[unlikely]] {
    hold.take(nullptr);  // control locks come before the engine's
    const LockGuard guard(i.target->control);
    if (i.target.is_alive() && i.target->epoll->is_ready(name_of(i.target))) bits = kReadyIn;
    ours = (bits & i.event.events) != 0;
    return bits & i.event.events;
  }
  bits = sock::ready_under(hold, i.target, i.event.events) & i.event.events;
  ours = bits != 0;
  // The kernel's level is valid for one look; an edge or a one-shot event is kept until reported.
  if (i.place == Place::kHybrid && (i.kernel_look == look_ || i.has(EPOLLET | EPOLLONESHOT)))
    bits |= i.kernel_bits & i.event.events;
  return bits;
}

/// The common case: a few items, all of the only engine, whose lock is held, and no events from the
/// kernel. The item reported last may be among them and no longer be ready. They are evaluated
/// while on the list, so that each lock is taken once. nullopt: use the general path.
std::optional<size_t> Epoll::take_few(const Engine& e, std::span<epoll_event> out) noexcept {
  constexpr uint32_t kFew = 8;
  const LockGuard guard(ready_lock_);
  uint32_t left = ready_count_;
  if (left - 1 >= kFew) return std::nullopt;
  for (const Item& i : ready_)
    if (i.is_epoll || i.has(EPOLLONESHOT) || i.kernel_bits != 0 || !i.target.is_alive() ||
        i.target->engine.load(std::memory_order_relaxed) != &e)
      return std::nullopt;
  size_t done = 0;
  do {
    Item& i = ready_.front();
    const uint32_t events = readiness(*i.target.file, i.event.events) & i.event.events;
    if (events != 0) {
      if (!is_writable(&out[done])) [[unlikely]]
        break;  // events without room stay on the list, as in the kernel
      out[done].events = events;
      out[done++].data = i.event.data;
    }
    if (events == 0 || i.has(EPOLLET)) {
      ready_.pop_front();
      --ready_count_;
      set_attention();
    } else if (ready_count_ != 1) {
      ready_.splice(ready_.end(), ready_, ready_.begin());  // as Linux: reported items go last
    }
  } while (--left != 0 && done < out.size());
  return done;
}

bool Epoll::poll_and_take(Engine& e, std::span<epoll_event> out, Instant now,
                          size_t& taken) noexcept VIREO_NO_THREAD_ANALYSIS {
  if (!take_to_poll(e, now)) return true;
  const bool busy = e.poll_to_return(now, PollOf::kWait);
  // The control lock comes before the engine's, so only try_lock is allowed.
  if (wants(kReady) && !wants(kDirty) && self_.control.try_lock()) {
    const bool has_kernel = hybrid_count_ != 0 || raw_count_ != 0;
    if (only_engine() == &e && (!has_kernel || now < next_look_))
      taken = take_few(e, out).value_or(0);
    self_.control.unlock();
  }
  e.unlock();
  return busy;
}

namespace {

/// The first `n` entries of the program's event array, cut before the first that is not writable.
/// Events without room stay on the list, as in the kernel.
std::span<epoll_event> writable(std::span<epoll_event> out, size_t n) noexcept {
  n = std::min(n, out.size());
  while (n != 0 && !is_writable(out.data(), n * sizeof(epoll_event))) [[unlikely]]
    --n;
  return out.first(n);
}

}  // namespace

size_t Epoll::take_ready(std::span<epoll_event> out) noexcept {
  if (Engine* const e = only_engine(); e != nullptr && !out.empty()) {
    sock::EngineHold hold;
    hold.take(e);
    if (const auto n = take_few(*e, out)) return *n;
  }
  constexpr size_t kBatch = 32;
  size_t done = 0;
  size_t left = 0;  // those ready at the start: an item that is put back waits for its turn
  {
    const LockGuard guard(ready_lock_);
    left = ready_count_;
  }
  out = writable(out, left);
  while (left != 0 && done < out.size()) {
    Item* batch[kBatch];
    Item* again[kBatch];
    Item* drop[kBatch];
    size_t n = 0;
    size_t m = 0;
    size_t d = 0;
    {
      const LockGuard guard(ready_lock_);
      const size_t most = std::min({kBatch, out.size() - done, left});
      // Off the list before the level is read: a later event then puts it back.
      for (; n < most && ready_count_ != 0; ++n) {
        batch[n] = &ready_.front();
        ready_.pop_front();
        --ready_count_;
      }
    }
    if (n == 0) break;
    left -= n;
    {
      sock::EngineHold hold;
      for (size_t k = 0; k < n; ++k) {
        Item& i = *batch[k];
        bool ours = false;
        const uint32_t events = evaluate(i, hold, ours);
        const bool from_kernel = i.kernel_bits != 0;
        i.kernel_bits = 0;
        if (events == 0) continue;
        out[done].events = events;
        out[done++].data = i.event.data;
        if (i.has(EPOLLONESHOT)) {
          i.disarmed = true;
          again[m++] = &i;
          // The kernel disarmed its side only if the event came from there.
          if (!from_kernel && i.place == Place::kHybrid) drop[d++] = &i;
        } else if (ours && !i.has(EPOLLET)) {
          again[m++] = &i;
        }
      }
    }
    for (Item* i : std::span(drop, d)) leave_kernel(-1, *i);
    const LockGuard guard(ready_lock_);
    for (Item* i : std::span(again, m)) {
      if (i->disarmed)
        i->muted = true;
      else
        push(*i);
    }
    set_attention();
  }
  return done;
}

Result<size_t> Epoll::take_raw(int epoll_fd, std::span<epoll_event> out) noexcept {
  if (out.empty()) return 0;
  const int n = kernel::epoll_now(epoll_fd, out.data(), static_cast<int>(out.size()));
  if (n < 0) return fail_errno("epoll_wait");
  return without_wake(out.first(static_cast<size_t>(n)));
}

/// Whether a call that may have events of Vireo's checks the kernel's side.
bool Epoll::is_kernels_turn(sock::Look how, Instant now) noexcept {
  if ((hybrid_count_ == 0 && raw_count_ == 0) || !pending()) return false;
  if (how == sock::Look::kTimely) return now >= next_look_;
  const auto skip = static_cast<uint32_t>(self_.stack->settings().select_skip_os);
  return skip != 0 && ++skipped_ >= skip && now >= next_look_;
}

Result<int> Epoll::harvest(int epoll_fd, std::span<epoll_event> out, sock::Look how,
                           Instant now) noexcept {
  settle_dirty(epoll_fd);
  const bool look = how == sock::Look::kBoth || is_kernels_turn(how, now);
  if (look) {
    skipped_ = 0;
    next_look_ = now + sock::kBetweenLooks;
    look_at_hybrid();
  }
  size_t done = 0;
  // The two sides take turns at being first, so that neither starves the other.
  const bool raw = look && raw_count_ != 0 && epoll_fd >= 0;
  const bool raw_first = raw && (raw_first_ = !raw_first_);
  const auto take_from_kernel = [&]() -> Result<void> {
    const auto n = take_raw(epoll_fd, out.subspan(done));
    if (!n) return std::unexpected(n.error());
    done += *n;
    return {};
  };
  if (raw_first)
    if (const auto r = take_from_kernel(); !r) return std::unexpected(r.error());
  if (pending()) done += take_ready(out.subspan(done));
  if (raw && !raw_first) {
    const auto r = take_from_kernel();
    if (!r && done == 0) return std::unexpected(r.error());
  }
  if (look) ++look_;  // the kernel's levels were valid for this look only
  return static_cast<int>(done);
}

bool Epoll::is_ready(int epoll_fd) noexcept {
  settle_dirty(epoll_fd);
  look_at_hybrid();
  size_t left = 0;
  {
    const LockGuard guard(ready_lock_);
    left = ready_count_;
  }
  for (; left != 0; --left) {
    Item* i = nullptr;
    {
      const LockGuard guard(ready_lock_);
      if (ready_count_ == 0) break;
      i = &ready_.front();
      ready_.pop_front();
      --ready_count_;
      set_attention();
    }
    bool ours = false;
    bool found = false;
    {
      sock::EngineHold hold;
      found = evaluate(*i, hold, ours) != 0;
    }
    // A level from the kernel alone is read again at every look.
    if (!found) continue;
    const LockGuard guard(ready_lock_);
    push(*i, true);
    return true;
  }
  if (raw_count_ == 0 || epoll_fd < 0) return false;
  pollfd p{epoll_fd, POLLIN, 0};
  return kernel::poll_now(&p, 1) > 0;
}

}  // namespace vireo
