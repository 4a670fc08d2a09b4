// What routers say about the size of packets, and what follows for flows (RFC 1191, RFC 8201).
// Believed only as RFC 5927 allows: TCP's report must quote a segment in flight, and no report gets
// below the family's floor. Remembered by destination for ten minutes; then the path is tried anew.
#include <netinet/in.h>
#include <algorithm>

#include "stack/engine/hub.h"
#include "stack/engine/mss.h"

namespace vireo {
namespace {

/// As Linux's ip_sk_accept_pmtu().
bool hears_reports(const IpSettings& ip) {
  return ip.mtu_discover != IP_PMTUDISC_INTERFACE && ip.mtu_discover != IP_PMTUDISC_OMIT;
}

}  // namespace

void NextHops::path_mtu_reported(TcpFlow& f, Seq32 quoted, uint32_t mtu, Instant now) noexcept {
  if (!hears_reports(f.ip) || !tcp::is_in_flight(f.tcb, quoted)) return;
  pmtu_.report(f.key.remote.addr, mtu, f.egress.link_mtu, now);
  // What another connection learnt counts too.
  mtu = pmtu_.get(f.key.remote.addr, f.egress.link_mtu, now);
  if (mtu >= f.egress.mtu) return;
  f.egress.mtu = mtu;
  const uint16_t mss = std::min(mss_of(mtu, f.key.v6), f.mss_limit);
  hub().notifications.note(f, tcp::path_shrunk(f.tcb, mss, now));
}

/// About a datagram. It has no number that a stranger would have to guess: what limits the harm is
/// the floor, and that a socket here must have sent to that destination.
void NextHops::path_mtu_reported(const ip::IcmpError& e, Instant now) noexcept {
  Demux::Ref r = hub().demux.find(
      DemuxKey::exact(e.proto, e.local.addr, e.local.port, e.remote.addr, e.remote.port));
  if (r == 0) r = hub().keys.find(e.proto, e.local.addr, e.local.port);
  if (kind_of(r) != FlowKind::kUdp) return;
  for (UdpFlow* u : at<UdpBinding>(r).flows) {
    if (u->egress_to.addr != e.remote.addr || u->egress_to.port != e.remote.port) continue;
    if (!hears_reports(u->ip) || u->egress.link_mtu == 0) continue;
    pmtu_.report(e.remote.addr, e.mtu, u->egress.link_mtu, now);
    u->egress.generation = 0;
  }
}

void NextHops::expire_path_mtus(Instant now) noexcept {
  if (now < pmtu_.first_expiry() || !pmtu_.expire(now)) return;
  // Whoever sends next looks its way up again, and finds the link's size.
  hub().tcp.for_each([](TcpFlow& f) { f.egress.generation = 0; });
  hub().udp.for_each([](UdpFlow& u) { u.egress.generation = 0; });
}

}  // namespace vireo
