#include "stack/tcp/reframe.h"

#include <algorithm>
#include <cstring>

#include "core/checksum.h"
#include "stack/tcp/tcb.h"
#include "stack/tcp/unsent.h"
#include "stack/wire/template.h"

namespace vireo::tcp {

namespace {

/// Drops the first `n` bytes. Moves the rest to the start of the frame, as append() expects.
void cut_front(SendDesc& d, uint32_t n) {
  PacketBuf& b = *d.packet;
  std::byte* const begin = b.frame + PacketPool::kHeadroom;
  std::memmove(begin, b.data() + n, b.length - n);
  b.data_at = PacketPool::kHeadroom;
  b.length = static_cast<uint16_t>(b.length - n);
  b.offset += n;
  b.sum = checksum::sum(begin, b.length);
  d.offset += n;
  d.length = b.length;
}

}  // namespace

bool join_unsent(Tcb& t, uint32_t bytes) {
  SendQueue& q = t.queue;
  const uint32_t first = q.next_index();
  if (q[first].length > bytes) return false;
  uint32_t found = 0;
  for (uint32_t i = first; found < bytes; ++i) {
    if (i == q.end() || !is_unsent(t, q[i])) return false;
    found += q[i].length;
  }
  if (q[first].length == bytes) return true;
  PacketBuf* const b = t.pool->may_send(false) ? t.pool->take() : nullptr;
  if (b == nullptr) return false;
  b->offset = q[first].offset;
  b->sum = 0;
  uint32_t i = first;
  while (b->length < bytes) {
    SendDesc& d = q[i];
    const uint32_t n = std::min(d.length, bytes - b->length);
    add_text(*b, d.packet->data(), n);
    if (n < d.length) {
      cut_front(d, n);
    } else {
      PacketPool::drop(d.packet);
      ++i;
    }
  }
  q[first].packet = b;
  q[first].length = bytes;
  q.remove(first + 1, i - first - 1);
  return true;
}

void pass_on_rest(Tcb& t, uint32_t bytes) {
  SendQueue& q = t.queue;
  const uint32_t i = q.next_index();
  SendDesc& d = q[i];
  if (d.length <= bytes || i + 1 == q.end()) return;
  SendDesc& behind = q[i + 1];
  if (!is_unsent(t, d) || !is_unsent(t, behind)) return;
  const uint32_t rest = d.length - bytes;
  PacketBuf& from = *d.packet;
  PacketBuf& to = *behind.packet;
  if (to.data_at < rest + wire::HeaderTemplate::kMaxBytes) return;
  to.data_at = static_cast<uint16_t>(to.data_at - rest);
  to.length = static_cast<uint16_t>(to.length + rest);
  to.offset -= rest;
  const checksum::Sum s = checksum::copy_and_sum(to.data(), from.data() + bytes, rest);
  to.sum = checksum::combine(s, to.sum, (rest & 1) != 0);
  behind.offset = to.offset;
  behind.length = to.length;
  from.length = static_cast<uint16_t>(bytes);
  from.sum = checksum::sum(from.data(), bytes);
  d.length = bytes;
}

}  // namespace vireo::tcp
