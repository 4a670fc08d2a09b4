// Frames that a blocked call waits for, handled inside that call: from the frame straight to the
// program's buffer. The work that nobody waits for is done by the next holder of the engine's lock
// (deferred_receive.h). Any unusual frame takes the next path (README.md), and nothing here has
// changed it.
// The callers are [[gnu::hot]]: behind so many conditions GCC takes the code for rare and optimizes
// it for size, by `div` and `rep movs`, which cost tens of cycles each.
// Owner: Engine. Thread: holder of its lock.
#pragma once

#include "core/checksum.h"
#include "core/copy.h"
#include "core/user_memory.h"
#include "stack/engine/engine.h"
#include "stack/tcp/fast_path/predicted.h"
#include "stack/wire/expected.h"

namespace vireo {

namespace awaited {

/// Copies and, unless the device did, verifies the checksum. @return false: it is wrong, and
/// nothing was done except to the buffer, which recv() may change before it returns.
template <class IsGood>
[[gnu::always_inline]] inline bool copy_verified(const RxDesc& d, void* to, const std::byte* text,
                                                 size_t n, IsGood&& is_good) noexcept {
  if (!has(d.flags, RxFlags::kL4Ok)) [[likely]]
    return is_good(checksum::copy_and_sum_here(to, text, n));
  copy_message(to, text, n);
  return true;
}

/// The answer to the only segment in flight. @return bytes at `to`; 0: it is something else.
[[gnu::always_inline]] inline uint32_t take_expected(Hub& hub, RxDesc& d, TcpFlow& f,
                                                     const iovec& to, Instant now) noexcept {
  constexpr unsigned kHeaders = wire::HeaderTemplate::kPlainTcp;
  tcp::Tcb& t = f.tcb;
  if (!t.single_out) return 0;
  const tcp::Scoreboard& board = t.queue.board();
  const PacketBuf& p = *d.packet;
  const std::byte* const frame = p.data();
  if (!board.answer.matches(frame)) return 0;
  const unsigned l4_bytes = wire::expected_l4_bytes(frame);
  const unsigned n = l4_bytes - (kHeaders - 34);  // wraps to a large number if shorter than its
                                                  // headers
  const uint32_t ts_val = wire::detail::word(frame + 58);
  // The delayed ACK must not need an earlier timer than the armed one.
  if (n - 1 >= board.answer_most || n + kHeaders > p.length || n > to.iov_len ||
      static_cast<int32_t>(ts_val - t.ts_recent) < 0 ||
      f.deadline() > now + tcp::least_ack_delay(t.ack_patience) || !is_writable(to.iov_base, n))
    return 0;
  if (!has(d.flags, RxFlags::kIpOk) && !wire::is_expected_ip_sum_good(frame)) [[unlikely]]
    return 0;
  if (!copy_verified(d, to.iov_base, frame + kHeaders, n, [&](uint64_t sum) {
        return wire::ExpectedTcp::is_sum_good(frame, l4_bytes, sum);
      })) [[unlikely]]
    return 0;
  tcp::take_answer(t, n, ts_val, wire::detail::half(frame + 48));
  hub.deferred.leave(f, {.at = now, .bytes = n, .ts_echo = wire::detail::word(frame + 62)});
  return n;
}

/// Whether it is from the peer, with headers that differ from the last one's (receive_awaited.cpp).
bool begins_row(UdpFlow& u, const std::byte* frame) noexcept;

/// A datagram from the peer. As above.
[[gnu::always_inline]] inline uint32_t take_expected(Hub& hub, RxDesc& d, UdpFlow& u,
                                                     const iovec& to, Instant) noexcept {
  constexpr unsigned kHeaders = wire::HeaderTemplate::kPlainUdp;
  const PacketBuf& p = *d.packet;
  const std::byte* const frame = p.data();
  if (!u.expected.repeats(frame) && !begins_row(u, frame)) [[unlikely]]
    return 0;
  const size_t n = u.expected.bytes();
  if (n - 1 >= to.iov_len || n + kHeaders > p.length || !is_writable(to.iov_base, n)) return 0;
  if (!copy_verified(d, to.iov_base, frame + kHeaders, n,
                     [&](uint64_t sum) { return u.expected.is_sum_good(frame, sum); })) [[unlikely]]
    return 0;
  hub.stats.rx_packets.add();
  hub.stats.rx_bytes.add(p.length);
  u.stats->rx_packets.add();
  u.stats->rx_bytes.add(n);
  return static_cast<uint32_t>(n);
}

}  // namespace awaited

inline bool Turn::must_finish(Instant now) noexcept {
  if (hub().wakeups.is_due(now) || is_deadline_moved_ || hub().doorbells.has_open_answers() ||
      ++frames_unserved_ >= kMaxUnserved) [[unlikely]]
    return true;
  idle_turns_ = 0;
  hub().stats.polls.add();
  return false;
}

/// poll_for() inlined into its caller. One look at the only queue: a single frame may be what the
/// caller waits for.
template <class F>
[[gnu::always_inline]] inline Engine::PolledFor Engine::poll_for_here(F& f, const iovec& to,
                                                                      Instant now,
                                                                      PollOf of) noexcept {
  VIREO_DEBUG_ASSERT(!hub_.deferred.is_left());
  Queue* const queue = hub_.ports.only().queue;
  if (queue == nullptr) [[unlikely]]
    return {0, poll_to_return(now, of)};
  hub_.wakeups.note_poll(now);
  RxDesc(&burst)[Receive::kBurst] = hub_.receive.burst();
  const unsigned n = queue->rx_burst(burst);
  RxDesc& first = burst[0];
  if (n == 1 && is_single(first.flags)) [[likely]] {
    if (const uint32_t bytes = awaited::take_expected(hub_, first, f, to, now); bytes != 0)
        [[likely]] {
      first.packet.reset();
      if (hub_.turn.must_finish(now)) [[unlikely]]  // the pool is unchanged
        return {bytes, hub_.turn.finish_to_return(now, of)};
      return {bytes, true};
    }
  }
  return {0, hub_.turn.go_on_to_return(now, of, n)};
}

}  // namespace vireo
