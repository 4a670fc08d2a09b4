// Dummy sends: the checks of a send, then the frame that goes nowhere.
#include "stack/sock/dummy_send.h"

#include "stack/engine/fast_path/warm_send.h"
#include "stack/sock/blocking.h"
#include "stack/sock/iov.h"
#include "stack/sock/udp_socket.h"

namespace vireo {
namespace {

/// Of a stream. Engine's lock held.
int stream_error(const File& f) noexcept {
  const tcp::Tcb& t = f.tcp_flow().tcb;
  if ((f.tcp.shut & kShutWrite) != 0 || f.tcp.undone) return EPIPE;
  if (tcp::is_opening(t)) return EAGAIN;
  return tcp::can_send(t) ? 0 : EPIPE;
}

/// Whether the flow's egress leads where `msg` goes. Errors: EDESTADDRREQ it goes nowhere.
Result<bool> leads_there(const File& f, const msghdr& msg) noexcept {
  const UdpFlow& u = f.udp_flow();
  if (msg.msg_name == nullptr || msg.msg_namelen == 0) {
    if (!f.udp->connected) return fail(EDESTADDRREQ, "send");
    return u.egress_to == f.udp->remote;
  }
  const auto to =
      Endpoint::from_sockaddr(static_cast<const sockaddr*>(msg.msg_name), msg.msg_namelen);
  return to && *to == u.egress_to;
}

}  // namespace

Result<ssize_t> send_dummy(Handle h, const msghdr& msg) noexcept {
  File& f = *h.file;
  const std::span<const iovec> iov(msg.msg_iov, msg.msg_iovlen);
  const auto bytes = static_cast<ssize_t>(iov_bytes(iov));
  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) return fail(EINVAL, "dummy send");
  const EngineGuard guard(*e);
  if (!h.is_alive()) return fail(EBADF, "send");
  if (!f.is_carried() || f.flow == nullptr) return fail(EINVAL, "dummy send");
  if (iov.empty()) return bytes;
  if (f.is_tcp()) {
    if (const int error = stream_error(f); error != 0) return fail(error, "send");
    (void)warm_segment(e->pool(), f.tcp_flow(), iov[0], Clock::now());
    return bytes;
  }
  if ((f.udp->shut & kShutWrite) != 0) return fail(EPIPE, "send");
  const auto leads = leads_there(f, msg);
  if (!leads) return std::unexpected(leads.error());
  if (*leads) (void)warm_datagram(e->pool(), f.udp_flow(), iov[0]);
  return bytes;
}

}  // namespace vireo
