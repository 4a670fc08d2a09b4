// Lends received packets to the program, in the layout of vma_packets_t.
#include "stack/extra/zero_copy.h"

#include <cstring>

#include "core/user_memory.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/datagram_ends.h"
#include "stack/sock/extra_state.h"
#include "stack/sock/inspection.h"
#include "stack/sock/shadow.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/udp_socket.h"

namespace vireo::extra {
namespace {

constexpr int kOurFlags = MSG_VMA_ZCOPY | MSG_VMA_ZCOPY_FORCE;
constexpr int kPlainFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
constexpr size_t kHead = sizeof(vma_packets_t) + sizeof(vma_packet_t);

/// Where the packet is described.
struct Room {
  std::byte* at;
  size_t pieces;  ///< that fit
};

/// Takes the first datagram. Engine's lock held.
void take_datagram(Handle h, Engine& e, Look& found) {
  const File& f = *h.file;
  PacketChain& queue = inspection::receivable(f);
  const uint32_t buffers = inspection::buffers_of_first(queue);
  const PacketBuf& first = *queue.front();
  uint32_t cost = 0;
  const PacketBuf* p = &first;
  for (uint32_t i = 0; i < buffers; ++i, p = p->next) cost += truesize(*p);
  found.what = Look::kMustCopy;
  if (!lending::may_lend(f, e, cost)) return;
  found.source = ends_of(first).source;
  found.hw_time = first.hw_time;
  found.packet = lending::lend(h, e, queue, buffers);
  if (found.packet.first == nullptr) return;
  inspection::took_one(f);
  found.what = Look::kLent;
}

/// Takes buffers from the front of a stream, as many as `most`. As above.
void take_stream(Handle h, Engine& e, size_t most, Look& found) VIREO_NO_THREAD_ANALYSIS {
  TcpFlow& flow = h->tcp_flow();
  PacketChain& queue = tcp::recv_queue(flow.tcb);
  found.what = Look::kUrgent;
  // A read stops at the mark.
  if (tcp::urgent(flow.tcb) != tcp::Urgent::kNone) return;
  uint32_t cost = 0, buffers = 0;
  for (const PacketBuf* p = queue.front(); p != nullptr && buffers < most; p = p->next, ++buffers) {
    cost += truesize(*p);
    if (!lending::may_lend(*h.file, e, cost)) break;
  }
  found.what = Look::kMustCopy;
  if (buffers == 0) return;
  found.source = flow.key.remote;
  found.hw_time = queue.front()->hw_time;
  found.packet = lending::lend(h, e, queue, buffers);
  if (found.packet.first == nullptr) return;
  found.what = Look::kLent;
  e.tcp().received(flow, static_cast<uint32_t>(found.packet.bytes), Clock::now());
}

bool has_data(const File& f) {
  return f.is_tcp() ? !tcp::recv_queue(f.tcp_flow().tcb).empty()
                    : !inspection::receivable(f).empty();
}

/// Describes a packet. @return the bytes described.
int describe(const Lent& packet, const Room& room, int& flags) {
  const size_t count = 1;
  vma_packet_t one;
  one.packet_id = lending::name_of(*packet.first);
  one.sz_iov = std::min(packet.buffers, room.pieces);
  std::memcpy(room.at, &count, sizeof count);
  std::memcpy(room.at + sizeof(vma_packets_t), &one, sizeof one);
  std::byte* to = room.at + kHead;
  int bytes = 0;
  const LentBuffer* b = packet.first;
  for (size_t i = 0; i < one.sz_iov; ++i, b = b->next, to += sizeof(iovec)) {
    const iovec piece{b->data, b->length};
    std::memcpy(to, &piece, sizeof piece);
    bytes += b->length;
  }
  if (b != nullptr) flags |= MSG_TRUNC;
  return bytes;
}

/// Waits until a receive would return. @return as recv(2) with MSG_PEEK.
Result<ssize_t> await_data(Handle h, int asked) {
  char first;
  const iovec v{&first, 1};
  // Of a datagram, nothing need be copied. A stream would not wait for that.
  return sock::recv(h, {&v, h->is_udp() ? 0U : 1U}, asked | MSG_PEEK);
}

/// The ExtraState that lending needs.
Result<void> make_state(Handle h) {
  const LockGuard control(h->control);
  if (!h.is_alive()) return fail(EBADF, "recv");
  if (extra_of(*h.file) == nullptr) return fail(ENOMEM, "recv");
  return {};
}

Result<void> give_from(Handle h, const Endpoint& source, sockaddr* from, socklen_t* len) {
  if (from == nullptr || len == nullptr) return {};
  if (!is_writable(len)) return fail(EFAULT, "recv");
  const int error = give_address(source, h->domain.load(std::memory_order_relaxed), from, len);
  if (error != 0) return fail(error, "recv");
  return {};
}

}  // namespace

Result<void> look(Handle h, size_t pieces, bool is_loose, Look& found) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  found.what = Look::kNothing;
  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) return {};
  EngineGuard guard(*e);
  if (f.extra == nullptr) [[unlikely]] {
    guard.unlock();
    if (auto made = make_state(h); !made) return made;
    guard.lock();
  }
  if (!h.is_alive() || !f.is_carried() || f.flow == nullptr) return {};
  // A receive that is to report an error, or must show datagrams first, takes the usual way.
  if (f.is_udp() && f.udp_flow().soft_error > 0) return {};
  if (!has_data(f)) e->poll_to_return(Clock::now());
  if (!has_data(f)) return {};
  if (f.is_udp())
    take_datagram(h, *e, found);
  else if (pieces != 0)
    take_stream(h, *e, pieces, found);
  else
    found.what = Look::kMustCopy;
  if (found.what != Look::kLent) return {};
  if (is_loose) lending::make_loose(*found.packet.first);
  found.user_data = f.extra->values.user_data.value_or(static_cast<uint64_t>(h.fd));
  return {};
}

Result<int> recv_zero_copy(Handle h, void* buffer, size_t len, int& flags, sockaddr* from,
                           socklen_t* from_len) {
  const bool is_forced = (flags & MSG_VMA_ZCOPY_FORCE) != 0;
  const int asked = flags & ~kOurFlags;
  flags = asked;
  const bool is_plain = (asked & ~kPlainFlags) == 0;
  const size_t pieces = len < kHead ? 0 : (len - kHead) / sizeof(iovec);
  bool has_waited = false;
  for (;;) {
    Look found;
    if (is_plain && h->is_carried()) {
      // What needs room for the description is not taken without.
      const bool has_room = len >= kHead + (h->is_tcp() ? sizeof(iovec) : 0);
      if (has_room && is_writable(buffer, kHead + pieces * sizeof(iovec))) {
        if (auto ok = look(h, pieces, false, found); !ok) return std::unexpected(ok.error());
      } else if (has_waited) {
        return fail(has_room ? EFAULT : ENOBUFS, "recv");
      }
    }
    if (found.what == Look::kLent) {
      const int n = describe(found.packet, {static_cast<std::byte*>(buffer), pieces}, flags);
      flags |= MSG_VMA_ZCOPY;
      if (auto ok = give_from(h, found.source, from, from_len); !ok)
        return std::unexpected(ok.error());
      return n;
    }
    if (found.what == Look::kNothing && !has_waited) {
      const auto n = await_data(h, asked);
      if (!n) return std::unexpected(n.error());
      if (*n == 0 && h->is_tcp()) return 0;  // the end of the stream
      has_waited = true;
      continue;
    }
    if (is_forced) return fail(EIO, "recv");
    const iovec v{buffer, len};
    const auto n = sock::recvfrom(h, {&v, 1}, asked | MSG_DONTWAIT, from, from_len);
    if (n) return static_cast<int>(*n);
    const bool waits = (asked & MSG_DONTWAIT) == 0 && !h->nonblock.load(std::memory_order_relaxed);
    if (n.error().code != EAGAIN || !waits) return std::unexpected(n.error());
    has_waited = false;  // another thread took it
  }
}

Result<int> free_packets(Handle h, const vma_packet_t* packets, size_t count) {
  Engine* const e = h->engine.load(std::memory_order_acquire);
  if (e == nullptr) return count == 0 ? Result<int>(0) : fail(ENOENT, "free");
  const bool has_pieces = h->is_tcp();  // UDP: an array of heads alone, as libvma has it
  const auto* at = reinterpret_cast<const std::byte*>(packets);
  for (size_t i = 0; i < count; ++i) {
    void* name = nullptr;
    if (!is_readable(at, sizeof name)) return fail(EFAULT, "free");
    std::memcpy(&name, at, sizeof name);
    {
      const EngineGuard guard(*e);
      LentBuffer* const first = h.is_alive() ? lending::find(*e, name, h) : nullptr;
      if (first == nullptr) return fail(ENOENT, "free");
      lending::give_back_packet(*first);
    }
    size_t pieces = 0;
    if (has_pieces && i + 1 < count) {
      if (!is_readable(at, sizeof(vma_packet_t))) return fail(EFAULT, "free");
      std::memcpy(&pieces, at + offsetof(vma_packet_t, sz_iov), sizeof pieces);
    }
    at += sizeof(vma_packet_t) + pieces * sizeof(iovec);
  }
  return 0;
}

}  // namespace vireo::extra
