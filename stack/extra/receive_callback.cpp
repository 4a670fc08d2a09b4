// Shows a datagram as libvma's callback expects it (stack/sock/inspection.h).
#include "stack/extra/receive_callback.h"

#include <algorithm>

#include "core/clock.h"
#include "stack/extra/layout.h"
#include "stack/sock/inspection.h"
#include "stack/sock/lent_buffers.h"

namespace vireo::extra {
namespace {

/// A datagram of 64 KiB in frames of 2 KiB has 33 pieces.
constexpr size_t kMaxPieces = 64;

/// CLOCK_REALTIME, which the kernel is asked for once in a millisecond: that costs more than a
/// short callback, and no clock drifts by a microsecond meanwhile.
int64_t wall_now() noexcept {
  struct Known {
    Instant until;
    int64_t offset;
  };
  thread_local constinit Known known{};
  const Instant now = Clock::now();
  if (now >= known.until) [[unlikely]]
    known = {now + Duration::ms(1), Clock::wall_ns() - now.ns()};
  return now.ns() + known.offset;
}

Verdict show(const Arrival& a, const Callback& callback) noexcept {
  iovec pieces[kMaxPieces];
  size_t n = 0;
  for (const LentBuffer* b = a.first; b != nullptr && n < kMaxPieces; b = b->next)
    pieces[n++] = {b->data, b->length};
  sockaddr_in source = address_of(a.ends.source);
  sockaddr_in destination = address_of(a.ends.destination);
  vma_info_t info{};
  info.struct_sz = sizeof info;
  info.packet_id = lending::name_of(*a.first);
  info.src = &source;
  info.dst = &destination;
  info.payload_sz = a.bytes;
  info.socket_ready_queue_pkt_count = a.ready_packets;
  info.socket_ready_queue_byte_count = a.ready_bytes;
  info.hw_timestamp = time_of(a.hw_time);
  info.sw_timestamp = time_of(wall_now());
  const auto function = reinterpret_cast<vma_recv_callback_t>(callback.function);
  switch (function(a.fd, n, pieces, &info, callback.context)) {
    case VMA_PACKET_DROP:
      return Verdict::kDrop;
    case VMA_PACKET_HOLD:
      return Verdict::kKeep;
    case VMA_PACKET_RECV:
      break;
  }
  return Verdict::kQueue;
}

}  // namespace

Result<void> set_receive_callback(Handle h, vma_recv_callback_t callback, void* context) {
  if (callback == nullptr) return inspection::set(h, {});
  return inspection::set(
      h, {.show = show, .function = reinterpret_cast<void (*)()>(callback), .context = context});
}

}  // namespace vireo::extra
