// From the program's write into the send buffer and out; fast paths are in
// fast_path/send_small.cpp.
#include <algorithm>

#include "stack/engine/hub.h"
#include "stack/tcp/fast_path/nagle.h"

namespace vireo {
namespace {

/// Bytes of one write handled at a time: what transmit() sends in one turn, in Ethernet's segments.
constexpr size_t kPiece = size_t{64} * 1460;

}  // namespace

size_t TcpFlows::send(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept {
  if (data.size() == 1 && !more) [[likely]] {
    const iovec& v = data[0];
    if (send_single(f, v, now)) [[likely]]
      return v.iov_len;
    hub().deferred.finish_if_left();
    if (send_nodelay(f, v, now)) return v.iov_len;
    if (append_nagled(f, v)) return v.iov_len;
  }
  return queue(f, data, more, now);
}

size_t TcpFlows::queue(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept {
  // Several pieces count as a large write; the pieces of a long write are not back-to-back writes.
  const size_t bytes = data.size() == 1 ? data[0].iov_len : f.tcb.mss;
  const bool is_corked = hub().doorbells.corked() != nullptr;
  const SendBy by = is_corked || more || is_small(f.tcb, bytes) ? SendBy::kCall : SendBy::kWrite;
  const bool is_uncorked = is_corked && hub().doorbells.pass_cork(f, bytes, more, now);
  const size_t n =
      bytes > kPiece ? send_pieces(f, data[0], more, now) : send_piece(f, data, more, by, now);
  // The time that this took was no pause of the program. A program that only sends polls for ACKs
  // with each doorbell: it fills the window many times faster than with one segment per write.
  if (is_uncorked && hub().doorbells.is_back_to_back(f)) {
    sent_at_poll_ = hub().stats.tx_bytes.get();
    hub().turn.poll(now);
  }
  hub().doorbells.waited(f);
  return n;
}

/// A long write leaves in pieces: one is sent while the next is copied, and the last ones use
/// buffers that the ACKs of the first have freed, which are in the cache. A piece ends at a segment
/// boundary.
size_t TcpFlows::send_pieces(TcpFlow& f, const iovec& all, bool more, Instant now) noexcept {
  const tcp::Tcb& t = f.tcb;
  size_t done = 0;
  while (done < all.iov_len && (done == 0 || tcp::can_send(t))) {
    const size_t most = std::max<size_t>(kPiece, 2 * t.mss);
    const size_t whole = most - most % t.mss - (t.snd_end - t.snd_nxt) % t.mss;
    const iovec piece{static_cast<std::byte*>(all.iov_base) + done,
                      std::min(all.iov_len - done, whole)};
    const size_t n = send_piece(f, {&piece, 1}, more, SendBy::kCall, now);
    done += n;
    if (n != piece.iov_len) break;
  }
  return done;
}

size_t TcpFlows::send_piece(TcpFlow& f, std::span<const iovec> data, bool more, SendBy by,
                            Instant now) noexcept {
  const size_t n = tcp::append(f.tcb, data, more, now);
  if (n != 0) {
    progress(f, by, now);
    // If a segment waits for the window, received ACKs may have opened it.
    if (has_sent_much() || tcp::unsent_bytes(f.tcb) >= f.tcb.mss) look_for_acks(f, now);
  }
  return n;
}

/// Between two sends, so that a program that only sends polls before its buffer is full, perhaps
/// megabytes later: ACKs free buffers that are still in the cache, and no other thread has to wake
/// for them.
[[gnu::noinline]] void TcpFlows::look_for_acks(const TcpFlow& f, Instant now) noexcept {
  sent_at_poll_ = hub().stats.tx_bytes.get();
  hub().turn.poll_to_return(now, PollOf::kCall);
  hub().doorbells.waited(f);
}

void TcpFlows::progress(TcpFlow& f, SendBy by, Instant now) noexcept {
  if (f.pending_hook.is_linked() && tcp::may_delay_ack(f.tcb)) return;  // its turn comes
  if (!hub().output.transmit(f, by, now)) hub().output.want(f);
}

}  // namespace vireo
