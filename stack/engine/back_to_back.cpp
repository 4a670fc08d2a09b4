// Writes that come as fast as the doorbell lets them: where that is a system call, each costs
// microseconds of it. Small ones with TCP_NODELAY share segments instead, for no longer than a few
// such calls take, as Linux's net.ipv4.tcp_autocorking has it while a frame is still in the
// driver's hands; larger ones share a call. Who pauses finds TCP_NODELAY as it ever was, and who
// waits for what comes has all leave.
#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "core/user_memory.h"
#include "stack/engine/hub.h"
#include "stack/tcp/fast_path/nagle.h"

namespace vireo {
namespace {

/// Sends in a row that came right behind the doorbell of the one before. A short burst leaves
/// segment by segment.
constexpr unsigned kBackToBack = 256;
/// A pause that may be none of the program's, but an interrupt: it costs so many, and twice as many
/// are counted at most.
constexpr Duration kInterrupted = Duration::us(100);
/// How long what is written waits for more, in doorbells.
constexpr int64_t kCorkedDoorbells = 3;
/// How long it waits where the program comes no more: the helper looks.
constexpr Duration kMaxCork = Duration::us(20);

}  // namespace

bool DoorbellPolicy::follows_at_once(const TcpFlow& f, Instant now) const noexcept {
  return back_to_back_.flow == &f &&
         now - back_to_back_.done < Duration::ns(back_to_back_.doorbell.ns() / 2);
}

/// What `f` has written has left, and rang.
void DoorbellPolicy::note_back_to_back(TcpFlow& f, Instant now) noexcept {
  if (follows_at_once(f, now))
    back_to_back_.sends = std::min(back_to_back_.sends + 1, 2 * kBackToBack);
  else if (back_to_back_.flow == &f && now - back_to_back_.done < kInterrupted)
    back_to_back_.sends -= std::min(back_to_back_.sends, kBackToBack);
  else
    back_to_back_.sends = 0;
  back_to_back_.flow = &f;
  back_to_back_.done = hub().config.clock();
  if (unrung_ == 0)
    back_to_back_.doorbell = std::min(back_to_back_.done - now, kMaxDoorbell);
  else
    ring();  // those before it are on their way too: what other queues have
}

/// What `f` has written, and leaves now, may wait for the doorbell of what it writes next.
bool DoorbellPolicy::may_hold_back_to_back(const TcpFlow& f, unsigned frames,
                                           Instant now) const noexcept {
  return back_to_back_.sends >= kBackToBack && follows_at_once(f, now) &&
         unrung_ + frames <= kMaxUnrung &&
         (corked_until().is_never() || now < back_to_back_.ring_at);
}

/// It has left, and does.
void DoorbellPolicy::hold_back_to_back(unsigned frames, Instant now) noexcept {
  back_to_back_.sends = std::min(back_to_back_.sends + 1, 2 * kBackToBack);
  back_to_back_.done = now;
  hub().stats.shared_doorbells.add(frames);
  unrung_ += frames;
  if (!corked_until().is_never()) {
    corked_until_.store((now + kMaxCork).ns(), std::memory_order_relaxed);
    return;
  }
  back_to_back_.ring_at = now + Duration::ns(kCorkedDoorbells * back_to_back_.doorbell.ns());
  watch_held(now);
}

/// `bytes` that might leave at once should wait.
bool DoorbellPolicy::may_cork(const TcpFlow& f, size_t bytes, Instant now) const noexcept {
  return back_to_back_.sends >= kBackToBack && follows_at_once(f, now) && is_small(f.tcb, bytes) &&
         unrung_ == 0;
}

/// They wait. @return false: there is no room for them.
bool DoorbellPolicy::cork(TcpFlow& f, const iovec& data, Instant now) noexcept {
  tcp::Tcb& t = f.tcb;
  VIREO_DEBUG_ASSERT(corked_ == nullptr);
  if (tcp::append(t, {&data, 1}, false, now) != data.iov_len) return false;
  tcp::set_autocork(t, true);
  corked_ = &f;
  uncork_at_ = back_to_back_.done + Duration::ns(kCorkedDoorbells * back_to_back_.doorbell.ns());
  hub().stats.corks.add();
  watch_held(now);
  return true;
}

/// A further write of the one that waits. @return false: its time is over, a segment is full,
/// or this is no small one.
bool DoorbellPolicy::join_corked(TcpFlow& f, const iovec& data, Instant now) noexcept {
  if (now >= uncork_at_ || !is_small(f.tcb, data.iov_len) ||
      !tcp::may_append_nagled(f.tcb, data.iov_len) || !is_readable(data.iov_base, data.iov_len))
    return false;
  tcp::append_nagled(f.tcb, data.iov_base, data.iov_len);
  return true;
}

/// `f` sends `bytes`, which do not just join what waits. That goes on waiting if a segment became
/// full, and ends else: another connection's leaves here, its own with them. @return it ends.
bool DoorbellPolicy::pass_cork(TcpFlow& f, size_t bytes, bool more, Instant now) noexcept {
  TcpFlow& corked = *corked_;
  if (&corked == &f && !more && now < uncork_at_ && is_small(f.tcb, bytes)) return false;
  forget_cork();
  // MSG_MORE holds back what is written with it, and nothing that was before.
  if (&corked != &f || more) hub().tcp.progress(corked, now);
  return true;
}

/// What waits leaves with the turn at hand.
void DoorbellPolicy::uncork() noexcept {
  TcpFlow& f = *corked_;
  forget_cork();
  hub().output.want(f);
}

void DoorbellPolicy::release_held(Instant now) noexcept {
  if (corked_ != nullptr) {
    TcpFlow& f = *corked_;
    forget_cork();
    hub().tcp.progress(f, now);
  }
  if (unrung_ != 0) ring();
}

void DoorbellPolicy::forget_cork() noexcept {
  tcp::set_autocork(std::exchange(corked_, nullptr)->tcb, false);
  if (unrung_ == 0) end_watch();
}

/// Any poll sends what waits from `now` on; the helper polls, if nobody has for so long.
void DoorbellPolicy::watch_held(Instant now) noexcept {
  hub().turn.note_work();
  hub().wakeups.set_due(now);
  // seq_cst pairs with end_cork_watch(): either the helper sees it, or we that it looks no more.
  corked_until_.store((now + kMaxCork).ns(), std::memory_order_seq_cst);
  if (!is_cork_watched_.load(std::memory_order_seq_cst)) [[unlikely]] {
    is_cork_watched_.store(true, std::memory_order_relaxed);
    hub().wakeups.ring_helper();
  }
}

bool DoorbellPolicy::end_cork_watch() noexcept {
  is_cork_watched_.store(false, std::memory_order_seq_cst);
  const bool is_over = corked_until().is_never();
  if (!is_over) is_cork_watched_.store(true, std::memory_order_relaxed);
  return is_over;
}

/// At worst the helper polls in vain.
void DoorbellPolicy::end_watch() noexcept {
  corked_until_.store(Instant::never().ns(), std::memory_order_relaxed);
}

}  // namespace vireo
