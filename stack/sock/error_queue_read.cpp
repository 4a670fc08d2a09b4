// recvmsg(2) with MSG_ERRQUEUE: the socket's own reports, then those of the kernel's socket beneath
// a datagram socket. Order and contents of the ancillary data as net/ipv4/ip_sockglue.c
// ip_recv_error() and net/ipv6/datagram.c ipv6_recv_error().
#include <netinet/in.h>

#include <cerrno>

#include "stack/sock/blocking.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/iov.h"
#include "stack/sock/send_reports.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stack.h"
#include "stack/sock/stamps.h"
#include "stack/sock/udp_socket.h"
#include "stack/wire/parse.h"

namespace vireo::send_reports {
namespace {

struct Error4 {
  sock_extended_err ee;
  sockaddr_in offender;
};
struct Error6 {
  sock_extended_err ee;
  sockaddr_in6 offender;
};

/// A report, with what is needed to tell it.
struct Taken {
  ErrorReport report;
  SocketOptions options;
};

/// Takes the oldest report. nullopt: there is none. Errors: EBADF.
Result<std::optional<Taken>> take(Handle h, Engine& e) noexcept {
  File& f = *h.file;
  const EngineGuard guard(e);
  if (!h.is_alive()) return fail(EBADF, "recvmsg");
  SendReports* const r = fd_table().reports_of(f);
  if (r == nullptr) return std::optional<Taken>();
  bool more = false;
  auto report = r->queue.pop(more);
  if (!report && f.flow != nullptr) {  // perhaps an ACK waits
    e.poll_to_return(Clock::now());
    report = r->queue.pop(more);
  }
  uint8_t& shut = f.is_tcp() ? f.tcp.shut : f.udp->shut;
  if (!more) shut &= static_cast<uint8_t>(~kHasReports);
  if (more) f.ready.notify(EPOLLERR);
  if (!report) return std::optional<Taken>();
  return Taken{std::move(*report), f.is_udp() ? f.udp->options : *f.tcp.options};
}

/// The addresses of the frame, where the options ask for them.
void put_addresses(const SocketOptions& o, int domain, const wire::ParsedFrame& p,
                   uint32_t interface, CmsgWriter& out) {
  if (domain == AF_INET6 && o.ipv6.pktinfo != 0) {
    in6_pktinfo info{};
    std::memcpy(&info.ipi6_addr, p.dst().bytes().data(), sizeof info.ipi6_addr);
    info.ipi6_ifindex = interface;
    out.put(IPPROTO_IPV6, IPV6_PKTINFO, info);
  }
  if (p.is_v6) {
    if (o.ipv6.recvhops != 0) out.put(IPPROTO_IPV6, IPV6_HOPLIMIT, static_cast<int>(p.ttl));
    if (o.ipv6.recvtclass != 0) out.put(IPPROTO_IPV6, IPV6_TCLASS, static_cast<int>(p.tos));
    return;
  }
  if (o.ip.pktinfo != 0) {
    in_pktinfo info{};
    info.ipi_ifindex = static_cast<int>(interface);
    info.ipi_spec_dst.s_addr = p.src().as_v4().raw();
    info.ipi_addr.s_addr = p.dst().as_v4().raw();
    out.put(IPPROTO_IP, IP_PKTINFO, info);
  }
  if (o.ip.recvttl != 0) out.put(IPPROTO_IP, IP_TTL, static_cast<int>(p.ttl));
  if (o.ip.recvtos != 0) out.put(IPPROTO_IP, IP_TOS, p.tos);
}

void put_control(const Taken& t, int domain, msghdr& msg) {
  const ErrorReport& r = t.report;
  const SocketOptions& o = t.options;
  CmsgWriter out(msg);
  if (o.socket.stamp != 0) put_stamp(o, r.time != 0 ? r.time : Clock::wall_ns(), out);
  if ((stamp_flags(o) & SOF_TIMESTAMPING_SOFTWARE) != 0) put_timestamping(o, {r.time, 0}, out);
  const sock_extended_err ee{.ee_errno = r.error,
                             .ee_origin = r.origin,
                             .ee_type = 0,
                             .ee_code = r.code,
                             .ee_pad = 0,
                             .ee_info = r.info,
                             .ee_data = r.data};
  // IPv4 names the interface and addresses on request only.
  const bool has_names = r.is_frame && r.interface != 0 &&
                         (domain == AF_INET6 || (stamp_flags(o) & SOF_TIMESTAMPING_OPT_CMSG) != 0);
  const auto frame = has_names ? wire::parse_frame({r.bytes.get(), r.length}) : wire::ParsedFrame();
  if (domain == AF_INET6) {
    Error6 error{ee, {}};
    if (frame) {
      put_addresses(o, domain, frame, r.interface, out);
      error.offender.sin6_family = AF_INET6;
      std::memcpy(&error.offender.sin6_addr, frame.src().bytes().data(), 16);
      if (frame.is_v6 && frame.src().is_link_local()) error.offender.sin6_scope_id = r.interface;
    }
    out.put(IPPROTO_IPV6, IPV6_RECVERR, error);
    return;
  }
  Error4 error{ee, {}};
  if (frame) {
    put_addresses(o, domain, frame, r.interface, out);
    error.offender.sin_family = AF_INET;
    error.offender.sin_addr.s_addr = frame.src().as_v4().raw();
  }
  out.put(IPPROTO_IP, IP_RECVERR, error);
}

/// Puts our numbers into a report of the kernel's socket, which counts only what it sends itself.
void renumber(File& f, msghdr& msg) noexcept {
  SendReports* const r = fd_table().reports_of(f);
  if (r == nullptr || (msg.msg_flags & MSG_ERRQUEUE) == 0) return;
  const LockGuard guard(r->lock);
  if (r->ids.differing.empty()) return;
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    const bool is_error = (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
                          (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);
    sock_extended_err ee;
    if (!is_error || c->cmsg_len < CMSG_LEN(sizeof ee)) continue;
    std::memcpy(&ee, CMSG_DATA(c), sizeof ee);
    if (ee.ee_origin != SO_EE_ORIGIN_TIMESTAMPING) continue;
    ee.ee_data = r->ids.ours(ee.ee_data);
    std::memcpy(CMSG_DATA(c), &ee, sizeof ee);
  }
}

}  // namespace

Result<ssize_t> receive(Handle h, msghdr& msg, int flags) {
  File& f = *h.file;
  Engine* const e = f.engine.load(std::memory_order_acquire);
  auto taken = e != nullptr ? take(h, *e) : Result<std::optional<Taken>>(std::nullopt);
  if (!taken) return std::unexpected(taken.error());
  if (!*taken) {
    if (!f.is_udp()) return fail(EAGAIN, "recvmsg");
    const auto n = kernel_recvmsg(h, msg, flags);
    if (n) renumber(f, msg);
    return n;
  }
  const ErrorReport& r = (*taken)->report;
  IovCursor to({msg.msg_iov, msg.msg_iovlen});
  const auto copied = copy_out_in_parts(to, {r.bytes.get(), r.length});
  if (!copied) return fail(EFAULT, "recvmsg");
  msg.msg_namelen = 0;
  msg.msg_flags = MSG_ERRQUEUE | (*copied < r.length ? MSG_TRUNC : 0);
  put_control(**taken, f.domain.load(std::memory_order_relaxed), msg);
  return static_cast<ssize_t>(*copied);
}

}  // namespace vireo::send_reports
