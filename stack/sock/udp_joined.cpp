#include "stack/sock/udp_joined.h"

#include "stack/sock/iov.h"
#include "stack/wire/parse.h"

namespace vireo {
namespace {

// Linux's: net/ipv4/udp_offload.c UDP_GRO_CNT_MAX, and what a packet holds.
constexpr unsigned kMostDatagrams = 64;
constexpr size_t kMostBytes = 65'507;

/// The datagram's headers, in front of its first buffer's bytes.
wire::ParsedFrame headers_of(const PacketBuf& first) noexcept {
  const unsigned head = header_bytes(first);
  return wire::parse_frame({first.data() - head, head + first.length}, UINT16_MAX);
}

/// All that recvmsg(2) may tell of a datagram but its bytes and time.
bool are_alike(const wire::ParsedFrame& a, const wire::ParsedFrame& b) noexcept {
  return b && a.is_v6 == b.is_v6 && a.src() == b.src() && a.dst() == b.dst() &&
         a.src_port == b.src_port && a.ttl == b.ttl && a.tos == b.tos;
}

}  // namespace

Joined join_alike(const UdpFlow& u, const msghdr& msg) noexcept {
  Joined all = first_alone(u);
  const size_t room = std::min(iov_bytes({msg.msg_iov, msg.msg_iovlen}), kMostBytes);
  if (all.bytes == 0 || msg.msg_controllen < CMSG_SPACE(sizeof(int))) return all;
  const PacketBuf& first = *u.queue.front();
  const wire::ParsedFrame head = headers_of(first);
  if (!head) return all;
  const PacketBuf* p = &first;
  while (all.datagrams < kMostDatagrams) {
    while (p->offset != 0) p = p->next;
    const PacketBuf* const next = p->next;
    if (next == nullptr || next->cookie != first.cookie) break;
    size_t bytes = 0;
    for (p = next;; p = p->next) {
      bytes += p->length;
      if (p->offset == 0) break;
    }
    if (bytes == 0 || bytes > all.segment || all.bytes + bytes > room ||
        !are_alike(head, headers_of(*next)))
      break;
    ++all.datagrams;
    all.bytes += bytes;
    if (bytes < all.segment) break;
  }
  return all;
}

}  // namespace vireo
