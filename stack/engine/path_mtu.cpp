// ICMP reports of path MTUs, and their effect on flows (RFC 1191, RFC 8201). Accepted only as RFC
// 5927 allows: a report for TCP must quote a segment in flight, and none goes below the family's
// minimum. Stored per destination for ten minutes; then the path is tried anew.
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
  // A report to another connection counts too.
  mtu = pmtu_.get(f.key.remote.addr, f.egress.link_mtu, now);
  if (mtu >= f.egress.mtu) return;
  f.egress.mtu = mtu;
  const uint16_t mss = std::min(mss_of(mtu, f.key.v6), f.mss_limit);
  hub().notifications.note(f, tcp::path_shrunk(f.tcb, mss, now));
}

/// For a datagram. An attacker need not guess a sequence number: the harm is limited by the
/// minimum, and because a socket here must have sent to that destination.
void NextHops::path_mtu_reported(const ip::IcmpError& e, Instant now) noexcept {
  Demux::Ref r = hub().demux.find(
      DemuxKey::exact(e.proto, e.local.addr, e.local.port, e.remote.addr, e.remote.port));
  if (r == 0) r = hub().keys.find(e.proto, e.local.addr, e.local.port);
  if (kind_of(r) != FlowKind::kUdp) return;
  for (UdpFlow* u : at<UdpBinding>(r).flows) {
    const Endpoint& to = u->goes_to();
    if (to.addr != e.remote.addr || to.port != e.remote.port) continue;
    if (!hears_reports(u->ip) || u->egress.link_mtu == 0) continue;
    pmtu_.report(e.remote.addr, e.mtu, u->egress.link_mtu, now);
    u->egress.generation = 0;
  }
}

void NextHops::expire_path_mtus(Instant now) noexcept {
  if (now < pmtu_.first_expiry() || !pmtu_.expire(now)) return;
  // The next send of each flow resolves again, and uses the link's MTU.
  hub().tcp.for_each([](TcpFlow& f) { f.egress.generation = 0; });
  hub().udp.for_each([](UdpFlow& u) { u.egress.generation = 0; });
}

}  // namespace vireo
