// Writes that follow each other as fast as the doorbell allows: where it is a system call, it costs
// each write microseconds. Small writes with TCP_NODELAY then share segments, for at most the time
// of a few such calls, as Linux does by net.ipv4.tcp_autocorking while the driver still has a
// frame; larger ones share a doorbell. After a pause TCP_NODELAY works as usual, and a program that
// waits for received data sends everything first.
#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "core/user_memory.h"
#include "stack/engine/hub.h"
#include "stack/tcp/fast_path/nagle.h"

namespace vireo {
namespace {

/// Consecutive sends, each right behind the doorbell of the one before. A short burst leaves
/// segment by segment.
constexpr unsigned kBackToBack = 256;
/// A pause below this may be an interrupt's, not the program's: it subtracts kBackToBack from the
/// count, which is limited to twice that.
constexpr Duration kInterrupted = Duration::us(100);
/// How long written data waits for more, in doorbells.
constexpr int64_t kCorkedDoorbells = 3;
/// How long it waits if the program makes no further call: then the helper sends it.
constexpr Duration kMaxCork = Duration::us(20);

}  // namespace

bool DoorbellPolicy::follows_at_once(const TcpFlow& f, Instant now) const noexcept {
  return back_to_back_.flow == &f &&
         now - back_to_back_.done < Duration::ns(back_to_back_.doorbell.ns() / 2);
}

/// A write on `f` has left and has rung.
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
    ring();  // frames before it leave too: those of other queues
}

/// Whether frames of a write on `f`, which are sent now, may wait for the doorbell of its next
/// write.
bool DoorbellPolicy::may_hold_back_to_back(const TcpFlow& f, unsigned frames,
                                           Instant now) const noexcept {
  return back_to_back_.sends >= kBackToBack && follows_at_once(f, now) &&
         unrung_ + frames <= kMaxUnrung &&
         (corked_until().is_never() || now < back_to_back_.ring_at);
}

/// The frames were sent and wait.
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

/// Whether `bytes` that could leave at once should wait.
bool DoorbellPolicy::may_cork(const TcpFlow& f, size_t bytes, Instant now) const noexcept {
  return back_to_back_.sends >= kBackToBack && follows_at_once(f, now) && is_small(f.tcb, bytes) &&
         unrung_ == 0;
}

/// Makes them wait. @return false: no buffer space.
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

/// A further write on the corked connection. @return false: its time is over, a segment is full, or
/// the write is not small.
bool DoorbellPolicy::join_corked(TcpFlow& f, const iovec& data, Instant now) noexcept {
  if (now >= uncork_at_ || !is_small(f.tcb, data.iov_len) ||
      !tcp::may_append_nagled(f.tcb, data.iov_len) || !is_readable(data.iov_base, data.iov_len))
    return false;
  tcp::append_nagled(f.tcb, data.iov_base, data.iov_len);
  return true;
}

/// `f` sends `bytes` that join_corked() did not take. Corking goes on if a segment became full,
/// else it ends: data of another connection is sent here, data of `f` with this send. @return it
/// ends.
bool DoorbellPolicy::pass_cork(TcpFlow& f, size_t bytes, bool more, Instant now) noexcept {
  TcpFlow& corked = *corked_;
  if (&corked == &f && !more && now < uncork_at_ && is_small(f.tcb, bytes)) return false;
  forget_cork();
  // MSG_MORE holds back the data of its own call only.
  if (&corked != &f || more) hub().tcp.progress(corked, now);
  return true;
}

/// The corked data leaves with the current turn.
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

/// From `now` on any poll sends what waits; if none comes within kMaxCork, the helper polls.
void DoorbellPolicy::watch_held(Instant now) noexcept {
  hub().turn.note_work();
  hub().wakeups.set_due(now);
  // seq_cst pairs with end_cork_watch(): either the helper sees this, or we see that it stopped.
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

/// Relaxed: at worst the helper polls in vain.
void DoorbellPolicy::end_watch() noexcept {
  corked_until_.store(Instant::never().ns(), std::memory_order_relaxed);
}

}  // namespace vireo
