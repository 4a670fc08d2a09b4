#include "tools/vireo-mourner/probe.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "core/address.h"
#include "stack/wire/tcp.h"
#include "stack/wire/template.h"

namespace vireo {
namespace {

/// NOP, NOP, TSopt. The value is our clock plus one second for its inaccuracy: an older value could
/// be dropped without an answer (RFC 7323 §5.3; Linux does so with old bare ACKs).
void put_timestamps(uint8_t (&out)[12], const LastWillEntry& e, Instant now) {
  const be32 value = static_cast<uint32_t>((now + Duration::s(1)).ns() / 1'000'000) + e.ts_offset;
  const uint8_t kind[] = {1, 1, 8, 10};
  std::memcpy(out, kind, sizeof kind);
  std::memcpy(out + 4, &value, sizeof value);
  std::memset(out + 8, 0, 4);
}

/// Sets the source address, so that the kernel routes as for the connection.
template <class Info>
void put_source(msghdr& m, int level, int type, const Info& info) {
  m.msg_controllen = CMSG_SPACE(sizeof info);
  cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = level;
  c->cmsg_type = type;
  c->cmsg_len = CMSG_LEN(sizeof info);
  std::memcpy(CMSG_DATA(c), &info, sizeof info);
}

}  // namespace

bool send_probe(const RawSockets& sockets, const LastWillEntry& e, unsigned round, Instant now) {
  const IpAddr local = IpAddr::v6(e.local_addr);
  const Endpoint remote{IpAddr::v6(e.remote_addr), 0, e.scope};
  uint8_t options[12];
  if (e.timestamps != 0) put_timestamps(options, e, now);
  const auto header = wire::HeaderTemplate::build({.proto = IpProto::kTcp,
                                                   .src = local,
                                                   .dst = remote.addr,
                                                   .src_port = e.local_port,
                                                   .dst_port = e.remote_port});
  alignas(16) std::byte packet[wire::HeaderTemplate::kMaxBytes];
  const size_t n =
      header.emit_tcp(packet, {.seq = e.iss + (round % 2) * 0x8000'0000U,
                               .flags = static_cast<uint8_t>(wire::TcpFlags::kAck),
                               .options = {options, e.timestamps != 0 ? sizeof options : 0}});
  sockaddr_storage to{};
  iovec data{packet + header.l3_at(), n - header.l3_at()};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(in6_pktinfo))]{};
  msghdr m{};
  m.msg_name = &to;
  m.msg_namelen = remote.to_sockaddr(to, remote.addr.family());
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  m.msg_control = control;
  if (header.is_v6()) {
    in6_pktinfo from{};
    from.ipi6_addr = local.as_in6();
    put_source(m, IPPROTO_IPV6, IPV6_PKTINFO, from);
  } else {
    in_pktinfo from{};
    from.ipi_spec_dst.s_addr = local.as_v4().raw();
    put_source(m, IPPROTO_IP, IP_PKTINFO, from);
  }
  const int socket = header.is_v6() ? sockets.v6 : sockets.v4;
  if (::sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  return errno != EAGAIN && errno != ENOBUFS;
}

}  // namespace vireo
