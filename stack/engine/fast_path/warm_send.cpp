// Builds the frame as send_plain.h does, in a buffer that returns to the pool.
#include "stack/engine/fast_path/warm_send.h"

#include <algorithm>

#include "core/checksum.h"
#include "core/user_memory.h"
#include "stack/engine/port.h"
#include "stack/tcp/tcp.h"
#include "stack/tcp/window.h"
#include "stack/wire/tcp.h"

namespace vireo {
namespace {

using Header = wire::HeaderTemplate;

/// A buffer with the first `n` bytes of `data`; empty: none.
PacketRef filled(PacketPool& pool, const iovec& data, size_t n, checksum::Sum& sum) noexcept {
  if (!is_readable(data.iov_base, n)) return {};
  PacketRef p(pool.take());
  if (!p) return {};
  p->length = static_cast<uint16_t>(n);
  sum = checksum::fold(checksum::copy_and_sum(p->data(), data.iov_base, n));
  return p;
}

/// What a send writes to besides its frame.
void fetch_books(const Flow& f, const CachedRoute& way) noexcept {
  __builtin_prefetch(f.stats, 1);
  __builtin_prefetch(way.port, 0);
  (void)way.port->queue().head_place();
}

bool is_ready(const CachedRoute& way) noexcept {
  return way.generation != 0 && way.port != nullptr && !way.port->dead && way.header;
}

}  // namespace

bool warm_datagram(PacketPool& pool, UdpFlow& f, const iovec& data) noexcept {
  const CachedRoute& way = f.egress;
  if (!is_ready(way) || way.mtu < Header::kMaxBytes) return false;
  const size_t room = std::min<size_t>(way.mtu, pool.frame_bytes() - PacketPool::kHeadroom);
  const size_t n = std::min(data.iov_len, room - Header::kMaxBytes);
  checksum::Sum sum = 0;
  const PacketRef p = filled(pool, data, n, sum);
  if (!p) return false;
  std::byte* const head = p->data() - way.header.size();
  if (way.header.is_plain_udp())
    way.header.emit_plain_udp(head, static_cast<uint32_t>(n), sum);
  else
    way.header.emit_udp(head, {.payload_bytes = static_cast<uint32_t>(n), .payload_sum = sum});
  fetch_books(f, way);
  return true;
}

bool warm_segment(PacketPool& pool, TcpFlow& f, const iovec& data, Instant now) noexcept {
  const CachedRoute& way = f.egress;
  const tcp::Tcb& t = f.tcb;
  if (!is_ready(way)) return false;
  const size_t n = std::min<size_t>(data.iov_len, t.mss);
  checksum::Sum sum = 0;
  const PacketRef p = filled(pool, data, n, sum);
  if (!p) return false;
  const uint16_t window = tcp::window_field(t);
  constexpr auto kFlags = static_cast<uint8_t>(wire::TcpFlags::kAck | wire::TcpFlags::kPsh);
  if (t.ts_on && way.header.is_plain_tcp()) {
    way.header.emit_plain_tcp(p->data() - Header::kPlainTcp,
                              {.seq = t.snd_seq(t.snd_end).value(),
                               .ack = t.rcv_seq(t.rcv_nxt).value(),
                               .flags = kFlags,
                               .window = window,
                               .ts_val = tcp::timestamp(t, now),
                               .ts_echo = t.ts_recent,
                               .payload_bytes = static_cast<uint32_t>(n),
                               .payload_sum = sum});
  } else {
    wire::HeaderTemplate::TcpFields what{};
    what.seq = t.snd_seq(t.snd_end).value();
    what.ack = t.rcv_seq(t.rcv_nxt).value();
    what.flags = kFlags;
    what.window = window;
    what.payload_bytes = static_cast<uint32_t>(n);
    what.payload_sum = sum;
    way.header.emit_tcp(p->data() - way.header.size(), what);
  }
  fetch_books(f, way);
  return true;
}

}  // namespace vireo
