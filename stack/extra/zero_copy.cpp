// Lends received packets to the program, in the layout of vma_packets_t.
#include "stack/extra/zero_copy.h"

#include <cstring>

#include "core/user_memory.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/extra_state.h"
#include "stack/sock/inspection.h"
#include "stack/sock/shadow.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/udp_socket.h"
#include "stack/wire/parse.h"

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

/// The ends of a datagram, from the headers in front of it.
Endpoint source_of(const PacketBuf& first) {
  const unsigned head = header_bytes(first);
  const auto p = wire::parse_frame({first.data() - head, head + first.length}, UINT16_MAX);
  return p ? Endpoint{p.src(), p.src_port, 0} : Endpoint{};
}

/// Takes the first datagram. Engine's lock held.
Look take_datagram(Handle h, Engine& e) {
  File& f = *h.file;
  uint32_t cost = 0;
  for (const PacketBuf* p = inspection::receivable(f).front();; p = p->next) {
    cost += truesize(*p);
    if (p->offset == 0) break;
  }
  if (!lending::may_lend(f, e, cost)) return {Look::kMustCopy};
  PacketChain packet;
  inspection::take_one_of(f, packet);
  Look found{Look::kLent, {}, source_of(*packet.front()), packet.front()->hw_time};
  found.packet = lending::lend(h, e, packet);
  if (found.packet.first != nullptr) return found;
  f.stats->rx_drops.add();  // no memory
  for (const PacketBuf* p = packet.front(); p != nullptr; p = p->next)
    UdpFlows::received(f.udp_flow(), *p);
  return {};
}

/// Takes buffers from the front of a stream, as many as `most`. As above.
Look take_stream(Handle h, Engine& e, size_t most) VIREO_NO_THREAD_ANALYSIS {
  TcpFlow& flow = h->tcp_flow();
  PacketChain& queue = tcp::recv_queue(flow.tcb);
  // A read stops at the mark.
  if (tcp::urgent(flow.tcb) != tcp::Urgent::kNone) return {Look::kUrgent};
  PacketChain some;
  uint32_t cost = 0;
  while (some.buffers() < most && !queue.empty()) {
    cost += truesize(*queue.front());
    if (!lending::may_lend(*h.file, e, cost)) break;
    some.push_back(queue.pop_front());
  }
  if (some.empty()) return {Look::kMustCopy};
  const uint32_t bytes = some.bytes();
  const int64_t hw_time = some.front()->hw_time;
  const Lent lent = lending::lend(h, e, some);
  if (lent.first == nullptr) {
    some.append(std::move(queue));
    queue = std::move(some);
    return {Look::kMustCopy};
  }
  e.tcp().received(flow, bytes, Clock::now());
  return {Look::kLent, lent, flow.key.remote, hw_time};
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
  return sock::recv(h, {&v, 1}, asked | MSG_PEEK);
}

Result<void> give_from(Handle h, const Endpoint& source, sockaddr* from, socklen_t* len) {
  if (from == nullptr || len == nullptr) return {};
  if (!is_writable(len)) return fail(EFAULT, "recv");
  const int error = give_address(source, h->domain.load(std::memory_order_relaxed), from, len);
  if (error != 0) return fail(error, "recv");
  return {};
}

}  // namespace

Result<void> prepare_look(Handle h) {
  const LockGuard control(h->control);
  if (!h.is_alive()) return fail(EBADF, "recv");
  if (extra_of(*h.file) == nullptr) return fail(ENOMEM, "recv");
  return {};
}

Look look(Handle h, size_t pieces, bool is_loose) VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) return {};
  const EngineGuard guard(*e);
  if (!h.is_alive() || !f.is_carried() || f.flow == nullptr) return {};
  // A receive that is to report an error, or must show datagrams first, takes the usual way.
  if (f.is_udp() && f.udp_flow().soft_error > 0) return {};
  if (!has_data(f)) e->poll_to_return(Clock::now());
  if (!has_data(f)) return {};
  if (pieces == 0 && f.is_tcp()) return {Look::kMustCopy};
  const Look found = f.is_tcp() ? take_stream(h, *e, pieces) : take_datagram(h, *e);
  if (is_loose && found.what == Look::kLent) lending::make_loose(*found.packet.first);
  return found;
}

Result<int> recv_zero_copy(Handle h, void* buffer, size_t len, int& flags, sockaddr* from,
                           socklen_t* from_len) {
  const bool is_forced = (flags & MSG_VMA_ZCOPY_FORCE) != 0;
  const int asked = flags & ~kOurFlags;
  flags = asked;
  const bool is_plain = (asked & ~kPlainFlags) == 0;
  if (auto ok = prepare_look(h); !ok) return std::unexpected(ok.error());
  const size_t pieces = len < kHead ? 0 : (len - kHead) / sizeof(iovec);
  bool has_waited = false;
  for (;;) {
    Look found;
    if (is_plain && h->is_carried()) {
      // What needs room for the description is not taken without.
      const bool has_room = len >= kHead + (h->is_tcp() ? sizeof(iovec) : 0);
      if (has_room && is_writable(buffer, kHead + pieces * sizeof(iovec))) {
        found = look(h, pieces);
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
      LentBuffer* const first = h.is_alive() ? lending::find(name, h) : nullptr;
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
