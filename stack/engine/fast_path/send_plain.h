// Frames whose headers differ from the last one's only by numbers and sums, written right in front
// of their payload, where the device may leave them. Inlined into the calls that send them.
// The callers are [[gnu::hot]]: behind so many conditions GCC takes the code for rare and optimizes
// it for size, by `div` and `rep movs`, which cost tens of cycles each.
// Owner: Engine. Thread: holder of its lock.
#pragma once

#include <netinet/in.h>

#include "core/checksum.h"
#include "core/user_memory.h"
#include "stack/engine/hub.h"

namespace vireo {

/// Sends a segment of payload and ACK only, its header right in front of the payload. Requires a
/// plain header. @return false: the ring is full.
[[gnu::always_inline]] inline bool emit_plain(TcpFlow& f, PacketBuf* b, uint64_t sum,
                                              uint16_t window, Doorbell bell,
                                              Instant now) noexcept {
  using Header = wire::HeaderTemplate;
  const tcp::Tcb& t = f.tcb;
  std::byte* const head = b->data() - Header::kPlainTcp;
  f.egress.header.emit_plain_tcp(
      head, {.seq = t.snd_seq(t.snd_end).value(),
             .ack = t.rcv_seq(t.rcv_nxt).value(),
             .flags = static_cast<uint8_t>(wire::TcpFlags::kAck | wire::TcpFlags::kPsh),
             .window = window,
             .ts_val = tcp::timestamp(t, now),
             .ts_echo = t.ts_recent,
             .payload_bytes = b->length,
             .payload_sum = sum});
  const PacketSlice slice{b, b->data_at, b->length};
  return f.egress.port->queue().tx({{head, Header::kPlainTcp}, {&slice, 1}, 0}, bell);
}
inline bool has_plain_header(const TcpFlow& f) noexcept {
  return f.tcb.ts_on && f.egress.header.is_plain_tcp() && f.ip.mtu_discover != IP_PMTUDISC_DONT;
}

/// send_datagram() inlined into its caller.
[[gnu::always_inline]] inline bool UdpFlows::send_datagram_here(UdpFlow& u, const iovec& data,
                                                                Doorbell bell) noexcept {
  using Header = wire::HeaderTemplate;
  const CachedRoute& way = u.egress;
  const size_t n = data.iov_len;
  if (!hub().is_current(way) || n == 0 || n >= u.plain_room || !is_readable(data.iov_base, n))
      [[unlikely]]
    return false;
  const PacketRef p(hub().pool.take());
  if (!p) [[unlikely]]
    return false;
  p->length = static_cast<uint16_t>(n);
  const uint64_t sum = checksum::copy_and_sum_here(p->data(), data.iov_base, n);
  // Right in front of the payload, where the device may leave it.
  std::byte* const head = p->data() - Header::kPlainUdp;
  way.header.emit_plain_udp(head, static_cast<uint32_t>(n), sum);
  const PacketSlice slice{p.get(), p->data_at, p->length};
  if (!way.port->queue().tx({{head, Header::kPlainUdp}, {&slice, 1}, 0}, bell)) [[unlikely]]
    return false;
  hub()
      .turn.end_idling();  // what the device has read is reaped in the next turn that finds nothing
  count_sent(u, Header::kPlainUdp, n);
  return true;
}

}  // namespace vireo
