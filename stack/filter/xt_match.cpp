// Evaluates x_tables matches, from their kernel data (linux/netfilter/xt_*.h). A match that is not
// listed here evaluates to "maybe".
#include <netinet/in.h>
// After the header above: else these define its names again.
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_addrtype.h>
#include <linux/netfilter/xt_conntrack.h>
#include <linux/netfilter/xt_mark.h>
#include <linux/netfilter/xt_multiport.h>
#include <linux/netfilter/xt_state.h>
#include <linux/netfilter/xt_tcpudp.h>
#include <linux/rtnetlink.h>

#include <cstring>
#include <optional>

#include "core/byteorder.h"
#include "stack/filter/conditions.h"

namespace vireo::filter {
namespace {

Ternary inverted_if(bool inverted, Ternary t) { return inverted ? negated(t) : t; }

/// The data, if it is long enough.
template <class T>
std::optional<T> info_of(const Expr& e) {
  if (e.data.size() < sizeof(T)) return std::nullopt;
  T t;
  std::memcpy(&t, e.data.data(), sizeof t);
  return t;
}

Ternary in_range(uint16_t port, uint16_t from, uint16_t to) {
  if (from == 0 && to == UINT16_MAX) return Ternary::kYes;
  if (port == 0) return Ternary::kMaybe;
  return surely(from <= port && port <= to);
}

Ternary tcp_match(const Expr& e, const Packet& p) {
  const auto i = info_of<xt_tcp>(e);
  if (!i || p.flow.proto != IpProto::kTcp) return i ? Ternary::kNo : Ternary::kMaybe;
  const auto inv = [&](uint8_t flag) { return (i->invflags & flag) != 0; };
  Ternary t = inverted_if(inv(XT_TCP_INV_SRCPT), in_range(p.source().port, i->spts[0], i->spts[1]));
  t = both(t, inverted_if(inv(XT_TCP_INV_DSTPT),
                          in_range(p.destination().port, i->dpts[0], i->dpts[1])));
  const Bits flags = p.transport_header().part(13, 1).masked({&i->flg_mask, 1}, {});
  t = both(t, inverted_if(inv(XT_TCP_INV_FLAGS), flags.equals({&i->flg_cmp, 1})));
  return i->option == 0 ? t : both(t, Ternary::kMaybe);
}

Ternary udp_match(const Expr& e, const Packet& p) {
  const auto i = info_of<xt_udp>(e);
  if (!i || p.flow.proto != IpProto::kUdp) return i ? Ternary::kNo : Ternary::kMaybe;
  return both(inverted_if((i->invflags & XT_UDP_INV_SRCPT) != 0,
                          in_range(p.source().port, i->spts[0], i->spts[1])),
              inverted_if((i->invflags & XT_UDP_INV_DSTPT) != 0,
                          in_range(p.destination().port, i->dpts[0], i->dpts[1])));
}

Ternary multiport_match(const Expr& e, const Packet& p) {
  const auto i = info_of<xt_multiport_v1>(e);
  if (!i || e.key != 1 || i->count > XT_MULTI_PORTS) return Ternary::kMaybe;
  Ternary any = Ternary::kNo;
  for (unsigned n = 0; n < i->count; ++n) {
    const uint16_t from = i->ports[n];
    const uint16_t to = i->pflags[n] != 0 && n + 1U < i->count ? i->ports[++n] : from;
    if (i->flags != XT_MULTIPORT_DESTINATION)
      any = either(any, in_range(p.source().port, from, to));
    if (i->flags != XT_MULTIPORT_SOURCE)
      any = either(any, in_range(p.destination().port, from, to));
  }
  return inverted_if(i->invert != 0, any);
}

/// XT_CONNTRACK_STATE_BIT() and nf_tables' bits are the same.
Ternary has_state(uint32_t wanted, const Packet& p) {
  return surely((wanted & static_cast<uint32_t>(p.state)) != 0);
}

Ternary conntrack_match(const Expr& e, const Packet& p) {
  if (e.key == 1) return Ternary::kMaybe;
  const auto i = info_of<xt_conntrack_mtinfo2>(e);  // revision 3 is longer at its end
  if (!i) return Ternary::kMaybe;
  if ((i->match_flags & XT_CONNTRACK_STATE) == 0) return Ternary::kMaybe;
  const Ternary t =
      inverted_if((i->invert_flags & XT_CONNTRACK_STATE) != 0, has_state(i->state_mask, p));
  const bool is_all = (i->match_flags & ~XT_CONNTRACK_STATE) == 0;
  return is_all ? t : both(t, Ternary::kMaybe);
}

Ternary state_match(const Expr& e, const Packet& p) {
  const auto i = info_of<xt_state_info>(e);
  return i ? has_state(i->statemask, p) : Ternary::kMaybe;
}

Ternary mark_match(const Expr& e, const Packet& p, bool marks_are_known) {
  const auto i = info_of<xt_mark_mtinfo1>(e);
  if (!i || e.key != 1 || !marks_are_known || !p.inbound) return Ternary::kMaybe;
  return inverted_if(i->invert != 0, surely(i->mark == 0));
}

Ternary addrtype_match(const Expr& e, const Packet& p) {
  const auto i = info_of<xt_addrtype_info_v1>(e);
  const IpAddr to = p.destination().addr;
  const bool is_plain = !to.is_multicast() && !to.is_limited_broadcast() &&
                        (!to.is_unspecified() || p.flow.proto == IpProto::kTcp);
  if (!i || e.key != 1 || i->source != 0 || !is_plain) return Ternary::kMaybe;
  const uint32_t type = p.inbound ? XT_ADDRTYPE_LOCAL : XT_ADDRTYPE_UNICAST;
  const Ternary t =
      inverted_if((i->flags & XT_ADDRTYPE_INVERT_DEST) != 0, surely((i->dest & type) != 0));
  constexpr uint32_t kLimits = XT_ADDRTYPE_LIMIT_IFACE_IN | XT_ADDRTYPE_LIMIT_IFACE_OUT;
  return (i->flags & kLimits) == 0 ? t : both(t, Ternary::kMaybe);
}

}  // namespace

Ternary xt_match(const Expr& e, const Packet& packet, bool marks_are_known) {
  if (e.name == "tcp") return tcp_match(e, packet);
  if (e.name == "udp") return udp_match(e, packet);
  if (e.name == "multiport") return multiport_match(e, packet);
  if (e.name == "conntrack") return conntrack_match(e, packet);
  if (e.name == "state") return state_match(e, packet);
  if (e.name == "mark") return mark_match(e, packet, marks_are_known);
  if (e.name == "addrtype") return addrtype_match(e, packet);
  if (e.name == "comment") return Ternary::kYes;
  return Ternary::kMaybe;
}

}  // namespace vireo::filter
