// What a blocked call waits for, to be part of that call: from the frame straight to the program's
// buffer. What nobody waits for is done by whoever takes the engine's lock next
// (deferred_receive.h). Whatever is not as it nearly always is goes the next way of the ladder
// (README.md), and nothing here has happened to it.
// Who has a part of it is [[gnu::hot]]: what lies behind so many conditions seems rare to GCC,
// which then saves bytes by `div` and `rep movs`, each tens of cycles.
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

/// Copies and, where the device has not, verifies. @return false: it is harmed, and nothing was
/// done but what may be done to a buffer before recv() returns.
template <class IsGood>
[[gnu::always_inline]] inline bool copy_verified(const RxDesc& d, void* to, const std::byte* text,
                                                 size_t n, IsGood&& is_good) noexcept {
  if (!has(d.flags, RxFlags::kL4Ok)) [[likely]]
    return is_good(checksum::copy_and_sum_here(to, text, n));
  copy_message(to, text, n);
  return true;
}

/// The answer to the lone segment. @return bytes that are at `to`; 0: it is something else.
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
  const unsigned n = l4_bytes - (kHeaders - 34);  // of what is too short for its headers: too much
  const uint32_t ts_val = wire::detail::word(frame + 58);
  // Of its ACK nothing is to be armed that is not.
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

/// Is it one of the peer's, whose headers are not those of the one before? (receive_awaited.cpp)
bool begins_row(UdpFlow& u, const std::byte* frame) noexcept;

/// A datagram of the peer. As above.
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

/// poll_for() as a part of its caller. One look at the only queue: what comes alone may be what the
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
      if (hub_.turn.must_finish(now)) [[unlikely]]  // the pool is as it was
        return {bytes, hub_.turn.finish_to_return(now, of)};
      return {bytes, true};
    }
  }
  return {0, hub_.turn.go_on_to_return(now, of, n)};
}

}  // namespace vireo
