// TCP Fast Open, the client's side of one connection: puts data and cookie on the first SYN, and
// sends again what the SYN-ACK did not acknowledge. As in Linux: net/ipv4/tcp_output.c
// tcp_send_syn_data(), net/ipv4/tcp_input.c tcp_rcv_fastopen_synack(). The server's side:
// fast_open_keys.h.
#include <algorithm>
#include <cstring>

#include "stack/tcp/syn_record.h"
#include "stack/tcp/tcb.h"

namespace vireo::tcp {

namespace {

/// Space in the SYN for options that are added on the path (Linux's MAX_TCP_OPTION_SPACE).
constexpr int kOptionSpace = 40;

/// The first `most` bytes of `data`. @return number of pieces.
size_t first_bytes(std::span<const iovec> data, size_t most, std::span<iovec> out) {
  size_t n = 0;
  for (const iovec& v : data) {
    if (most == 0 || n == out.size()) break;
    out[n] = {v.iov_base, std::min(v.iov_len, most)};
    most -= out[n++].iov_len;
  }
  return n;
}

}  // namespace

void defer_syn(Tcb& t) { t.syn_due = false; }

bool is_syn_deferred(const Tcb& t) {
  return t.state == State::kSynSent && t.snd_nxt == 0 && !t.syn_due;
}

void let_syn_go(Tcb& t, Instant now) {
  t.syn_due = true;
  t.last_sent = now;
}

size_t begin_fast_open(Tcb& t, const SynData& d, Instant now) {
  let_syn_go(t, now);
  t.fast_asked = true;
  if (d.cookie.empty() && !d.without_cookie) return 0;
  const int frame = static_cast<int>(t.pool->frame_bytes() - PacketPool::kHeadroom);
  const int space =
      std::min({int{d.peer_mss} - kOptionSpace, int{t.path_mss} - kOptionSpace, frame});
  if (space <= 0) return 0;
  t.mss = static_cast<uint16_t>(space);  // until the SYN-ACK sets it
  iovec part[16];
  const size_t pieces = first_bytes(d.data, static_cast<size_t>(space), part);
  const size_t taken = append(t, {part, pieces}, false, now);
  if (taken == 0) return 0;
  t.syn_data = true;
  Scoreboard& b = t.queue.board();
  b.cookie_bytes =
      static_cast<uint8_t>(d.without_cookie ? 0 : std::min(d.cookie.size(), sizeof b.cookie));
  if (b.cookie_bytes != 0) std::memcpy(b.cookie, d.cookie.data(), b.cookie_bytes);
  return taken;
}

void plan_fast_open(Tcb& t, Plan& p) {
  if (!t.syn_data) {
    add_fast_open(p, {});
    return;
  }
  const Scoreboard& b = t.queue.board();
  if (b.cookie_bytes != 0) add_fast_open(p, {b.cookie, b.cookie_bytes});
  PacketBuf* const packet = t.queue.front().packet;
  if (packet->length + kOptionSpace > t.path_mss) return;  // the path MTU shrank meanwhile
  p.packet = packet;
  p.at = packet->data_at;
  p.length = packet->length;
}

void syn_data_sent(Tcb& t, const Plan& p, Instant now) {
  if (p.length == 0) {  // RTT is ambiguous (Karn)
    if (!t.queue.empty()) ++t.queue.front().retransmits;
    return;
  }
  t.queue.front().sent_at = now;
  t.queue.pass_next();
  t.snd_nxt = t.snd_end;
  ++t.data_segs_out;
  t.bytes_sent += p.length;
}

void take_back_syn_data(Tcb& t) {
  t.syn_data = false;
  t.push = true;
  const StreamOffset from = std::max<StreamOffset>(t.snd_una, 1);
  if (t.snd_nxt <= from) return;
  ++t.total_retrans;
  t.bytes_retrans += t.snd_nxt - from;
  t.queue.rewind();
  t.queue.front().retransmits = 0;  // the copy on the SYN will never be acknowledged
  t.snd_nxt = t.snd_max = from;
}

void end_fast_open(Tcb& t) { t.fast_asked = false; }

}  // namespace vireo::tcp
