#include "stack/net/messages.h"

#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netconf.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "stack/net/attributes.h"

namespace vireo::net {
namespace {

/// Attributes newer than the system's headers.
constexpr int kFraDscp = 25, kFraSportMask = 28, kFraDportMask = 29, kFraMax = 40;

/// 0 if absent or too short.
template <class Unsigned>
Unsigned number(const nlattr* a) {
  Unsigned v = 0;
  if (a != nullptr && attribute_length(a) >= static_cast<int>(sizeof v))
    std::memcpy(&v, attribute_data(a), sizeof v);
  return v;
}
uint32_t u32(const nlattr* a) { return number<uint32_t>(a); }
uint16_t u16(const nlattr* a) { return number<uint16_t>(a); }
uint8_t u8(const nlattr* a) { return number<uint8_t>(a); }

std::string text(const nlattr* a) {
  if (a == nullptr) return {};
  const char* p = attribute_data(a);
  return std::string(p, strnlen(p, static_cast<size_t>(attribute_length(a))));
}

IpAddr any(int family) { return family == AF_INET ? IpAddr::any_v4() : IpAddr(); }

std::optional<IpAddr> address(const void* data, int len, int family) {
  if (family == AF_INET && len >= 4) {
    be32 v;
    std::memcpy(&v, data, 4);
    return IpAddr::v4(v);
  }
  if (family == AF_INET6 && len >= 16) {
    in6_addr v;
    std::memcpy(&v, data, 16);
    return IpAddr::v6(v);
  }
  return std::nullopt;
}
std::optional<IpAddr> address(const nlattr* a, int family) {
  if (a == nullptr) return std::nullopt;
  return address(attribute_data(a), attribute_length(a), family);
}

void read_mac(const nlattr* a, Mac& out) {
  if (a != nullptr && attribute_length(a) == static_cast<int>(out.size()))
    std::memcpy(out.data(), attribute_data(a), out.size());
}

void read_egress_qos(const nlattr* list, std::array<uint8_t, 16>& out) {
  if (list == nullptr) return;
  const char* p = attribute_data(list);
  for (int left = attribute_length(list); left >= NLA_HDRLEN;) {
    nlattr a{};
    std::memcpy(&a, p, sizeof a);
    if (a.nla_len < NLA_HDRLEN || a.nla_len > left) return;
    ifla_vlan_qos_mapping m{};
    if ((a.nla_type & NLA_TYPE_MASK) == IFLA_VLAN_QOS_MAPPING &&
        a.nla_len >= NLA_HDRLEN + static_cast<int>(sizeof m)) {
      std::memcpy(&m, p + NLA_HDRLEN, sizeof m);
      if (m.from < out.size()) out[m.from] = static_cast<uint8_t>(m.to & 7);
    }
    p += NLA_ALIGN(a.nla_len);
    left -= NLA_ALIGN(a.nla_len);
  }
}

bool is_ip(int family) { return family == AF_INET || family == AF_INET6; }

LinkKind link_kind(std::string_view name) {
  struct Entry {
    std::string_view name;
    LinkKind kind;
  };
  static constexpr Entry kNames[] = {
      {"", LinkKind::kPhysical},       {"veth", LinkKind::kVeth},     {"vlan", LinkKind::kVlan},
      {"bond", LinkKind::kBond},       {"team", LinkKind::kTeam},     {"bridge", LinkKind::kBridge},
      {"macvlan", LinkKind::kMacvlan}, {"ipvlan", LinkKind::kIpvlan}, {"vrf", LinkKind::kVrf},
      {"tun", LinkKind::kTun},         {"dummy", LinkKind::kDummy},
  };
  for (const Entry& e : kNames)
    if (e.name == name) return e.kind;
  return LinkKind::kOther;
}

LinkFlags link_flags(const ifinfomsg& h) {
  struct Entry {
    unsigned bits;
    LinkFlags flag;
  };
  static constexpr Entry kBits[] = {
      {IFF_UP, LinkFlags::kUp},
      {IFF_RUNNING | IFF_LOWER_UP, LinkFlags::kRunning},
      {IFF_LOOPBACK, LinkFlags::kLoopback},
      {IFF_BROADCAST, LinkFlags::kBroadcast},
      {IFF_MULTICAST, LinkFlags::kMulticast},
      {IFF_POINTOPOINT, LinkFlags::kPointToPoint},
      {IFF_NOARP, LinkFlags::kNoArp},
  };
  LinkFlags f = h.ifi_type == ARPHRD_ETHER ? LinkFlags::kEthernet : LinkFlags::kNone;
  for (const Entry& e : kBits)
    if ((h.ifi_flags & e.bits) == e.bits) f |= e.flag;
  return f;
}

/// The IPv6 MTU from router advertisements: IFLA_AF_SPEC / AF_INET6 / IFLA_INET6_CONF
/// [DEVCONF_MTU6].
uint32_t ipv6_mtu(const nlattr* af_spec) {
  constexpr int kDevconfMtu6 = 2;
  const Attributes<AF_INET6> families(af_spec);
  const Attributes<IFLA_INET6_CONF> v6(families[AF_INET6]);
  const nlattr* conf = v6[IFLA_INET6_CONF];
  if (conf == nullptr ||
      attribute_length(conf) < static_cast<int>((kDevconfMtu6 + 1) * sizeof(int32_t)))
    return 0;
  int32_t mtu;
  std::memcpy(&mtu, attribute_data(conf) + kDevconfMtu6 * sizeof mtu, sizeof mtu);
  return mtu > 0 ? static_cast<uint32_t>(mtu) : 0;
}

std::optional<RouteType> route_type(uint8_t type) {
  switch (type) {
    case RTN_UNICAST:
      return RouteType::kUnicast;
    case RTN_LOCAL:
      return RouteType::kLocal;
    case RTN_BROADCAST:
      return RouteType::kBroadcast;
    case RTN_ANYCAST:
      return RouteType::kAnycast;
    case RTN_MULTICAST:
      return RouteType::kMulticast;
    case RTN_BLACKHOLE:
      return RouteType::kBlackhole;
    case RTN_UNREACHABLE:
      return RouteType::kUnreachable;
    case RTN_PROHIBIT:
      return RouteType::kProhibit;
    case RTN_THROW:
      return RouteType::kThrow;
    default:
      return std::nullopt;
  }
}

std::optional<IpAddr> gateway(const nlattr* plain, const nlattr* via, int family) {
  if (plain != nullptr) return address(plain, family);
  if (via == nullptr || attribute_length(via) < 2) return std::nullopt;
  rtvia v;
  std::memcpy(&v, attribute_data(via), sizeof v);
  return address(attribute_data(via) + sizeof v, attribute_length(via) - static_cast<int>(sizeof v),
                 v.rtvia_family);
}

void read_hop_flags(unsigned flags, Hop& h) {
  h.dead = (flags & RTNH_F_DEAD) != 0;
  h.linkdown = (flags & RTNH_F_LINKDOWN) != 0;
}

void read_multipath(const nlattr* a, int family, Route& r) {
  const char* p = attribute_data(a);
  int left = attribute_length(a);
  while (left >= static_cast<int>(sizeof(rtnexthop))) {
    rtnexthop nh;
    std::memcpy(&nh, p, sizeof nh);
    if (nh.rtnh_len < sizeof nh || nh.rtnh_len > left) return;
    const Attributes<RTA_MAX> at(p + sizeof nh, nh.rtnh_len - static_cast<int>(sizeof nh));
    Hop h{.oif = IfIndex(static_cast<uint32_t>(nh.rtnh_ifindex)),
          .gateway = gateway(at[RTA_GATEWAY], at[RTA_VIA], family),
          .weight = static_cast<uint16_t>(nh.rtnh_hops + 1)};
    read_hop_flags(nh.rtnh_flags, h);
    r.encap |= at[RTA_ENCAP] != nullptr;
    r.multipath.push_back(h);
    const int step = static_cast<int>(NLA_ALIGN(nh.rtnh_len));
    p += step;
    left -= step;
  }
}

RuleAction rule_action(uint8_t action) {
  switch (action) {
    case FR_ACT_GOTO:
      return RuleAction::kGoto;
    case FR_ACT_NOP:
      return RuleAction::kNop;
    case FR_ACT_BLACKHOLE:
      return RuleAction::kBlackhole;
    case FR_ACT_UNREACHABLE:
      return RuleAction::kUnreachable;
    case FR_ACT_PROHIBIT:
      return RuleAction::kProhibit;
    default:
      return RuleAction::kTable;
  }
}

PortRange port_range(const nlattr* a) {
  if (a == nullptr || attribute_length(a) < static_cast<int>(sizeof(fib_rule_port_range)))
    return {};
  fib_rule_port_range r;
  std::memcpy(&r, attribute_data(a), sizeof r);
  return {r.start, r.end};
}

}  // namespace

std::optional<Link> parse_link(const nlmsghdr& m) {
  const auto* h = header_of<ifinfomsg>(m);
  if (h == nullptr || h->ifi_family != AF_UNSPEC) return std::nullopt;
  const auto a = attributes_of<IFLA_MAX>(m, h);
  Link l;
  l.index = IfIndex(static_cast<uint32_t>(h->ifi_index));
  l.flags = link_flags(*h);
  l.name = text(a[IFLA_IFNAME]);
  read_mac(a[IFLA_ADDRESS], l.mac);
  read_mac(a[IFLA_BROADCAST], l.broadcast);
  l.mtu = u32(a[IFLA_MTU]);
  l.mtu6 = ipv6_mtu(a[IFLA_AF_SPEC]);
  if (l.mtu6 >= l.mtu) l.mtu6 = 0;
  l.master = IfIndex(u32(a[IFLA_MASTER]));
  if (a[IFLA_LINKINFO] == nullptr) return l;

  const Attributes<IFLA_INFO_MAX> info(a[IFLA_LINKINFO]);
  l.kind_name = text(info[IFLA_INFO_KIND]);
  l.kind = link_kind(l.kind_name);
  const bool stacked =
      l.kind == LinkKind::kVlan || l.kind == LinkKind::kMacvlan || l.kind == LinkKind::kIpvlan;
  // A veth's IFLA_LINK is its peer; an index in another namespace is meaningless here.
  if (stacked && a[IFLA_LINK_NETNSID] == nullptr) l.lower = IfIndex(u32(a[IFLA_LINK]));
  if (l.kind == LinkKind::kVlan) {
    const Attributes<IFLA_VLAN_MAX> vlan(info[IFLA_INFO_DATA]);
    l.vlan = VlanId(u16(vlan[IFLA_VLAN_ID]));
    l.vlan_8021ad = u16(vlan[IFLA_VLAN_PROTOCOL]) == be16(ETH_P_8021AD).raw();
    read_egress_qos(vlan[IFLA_VLAN_EGRESS_QOS], l.egress_qos);
  }
  return l;
}

std::optional<Conf> parse_conf(const nlmsghdr& m) {
  const auto* h = header_of<netconfmsg>(m);
  if (h == nullptr || h->ncm_family != AF_INET) return std::nullopt;
  const auto a = attributes_of<NETCONFA_MAX>(m, h);
  if (a[NETCONFA_IFINDEX] == nullptr) return std::nullopt;
  Conf c{.ifindex = static_cast<int32_t>(u32(a[NETCONFA_IFINDEX])), .rp_filter = {}};
  if (a[NETCONFA_RP_FILTER] != nullptr)
    c.rp_filter = static_cast<uint8_t>(u32(a[NETCONFA_RP_FILTER]));
  return c;
}

std::optional<Addr> parse_addr(const nlmsghdr& m) {
  const auto* h = header_of<ifaddrmsg>(m);
  if (h == nullptr || !is_ip(h->ifa_family)) return std::nullopt;
  const auto a = attributes_of<IFA_MAX>(m, h);
  const auto peer = address(a[IFA_ADDRESS], h->ifa_family);
  const auto local = address(a[IFA_LOCAL], h->ifa_family);
  if (!peer && !local) return std::nullopt;
  Addr r;
  r.ifindex = IfIndex(h->ifa_index);
  r.addr = local ? *local : *peer;
  r.prefix = peer ? *peer : *local;
  r.prefix_len = h->ifa_prefixlen;
  r.scope = static_cast<Scope>(h->ifa_scope);
  r.broadcast = address(a[IFA_BROADCAST], h->ifa_family);
  const uint32_t f = a[IFA_FLAGS] != nullptr ? u32(a[IFA_FLAGS]) : h->ifa_flags;
  if ((f & IFA_F_SECONDARY) != 0)
    r.flags |= h->ifa_family == AF_INET ? AddrFlags::kSecondary : AddrFlags::kTemporary;
  if ((f & IFA_F_DEPRECATED) != 0) r.flags |= AddrFlags::kDeprecated;
  if ((f & IFA_F_TENTATIVE) != 0 && (f & IFA_F_OPTIMISTIC) == 0) r.flags |= AddrFlags::kTentative;
  if ((f & IFA_F_DADFAILED) != 0) r.flags |= AddrFlags::kDadFailed;
  return r;
}

std::optional<RouteMessage> parse_route(const nlmsghdr& m) {
  const auto* h = header_of<rtmsg>(m);
  if (h == nullptr || !is_ip(h->rtm_family)) return std::nullopt;
  const auto a = attributes_of<RTA_MAX>(m, h);
  const int family = h->rtm_family;
  const auto type = route_type(h->rtm_type);
  if (!type) return std::nullopt;
  RouteMessage out;
  out.cloned = (h->rtm_flags & RTM_F_CLONED) != 0;
  out.by_source = h->rtm_src_len != 0;
  Route& r = out.route;
  r.table = a[RTA_TABLE] != nullptr ? u32(a[RTA_TABLE]) : h->rtm_table;
  r.dst = address(a[RTA_DST], family).value_or(any(family));
  r.dst_len = h->rtm_dst_len;
  r.tos = h->rtm_tos;
  r.protocol = h->rtm_protocol;
  r.scope = static_cast<Scope>(h->rtm_scope);
  r.type = *type;
  r.preference = u8(a[RTA_PREF]);
  r.encap = a[RTA_ENCAP] != nullptr;
  r.metric = u32(a[RTA_PRIORITY]);
  r.prefsrc = address(a[RTA_PREFSRC], family);
  const Attributes<RTAX_MAX> metrics(a[RTA_METRICS]);
  r.mtu = u32(metrics[RTAX_MTU]);
  r.advmss = u32(metrics[RTAX_ADVMSS]);
  if (a[RTA_MULTIPATH] != nullptr) {
    read_multipath(a[RTA_MULTIPATH], family, r);
  } else {
    r.hop.oif = IfIndex(u32(a[RTA_OIF]));
    r.hop.gateway = gateway(a[RTA_GATEWAY], a[RTA_VIA], family);
    read_hop_flags(h->rtm_flags, r.hop);
  }
  return out;
}

std::optional<Rule> parse_rule(const nlmsghdr& m) {
  const auto* h = header_of<fib_rule_hdr>(m);
  if (h == nullptr || !is_ip(h->family)) return std::nullopt;
  const auto a = attributes_of<kFraMax>(m, h);
  Rule r;
  r.v6 = h->family == AF_INET6;
  r.priority = u32(a[FRA_PRIORITY]);
  r.action = rule_action(h->action);
  r.table = a[FRA_TABLE] != nullptr ? u32(a[FRA_TABLE]) : h->table;
  r.goto_priority = u32(a[FRA_GOTO]);
  r.invert = (h->flags & FIB_RULE_INVERT) != 0;
  r.from = address(a[FRA_SRC], h->family).value_or(any(h->family));
  r.to = address(a[FRA_DST], h->family).value_or(any(h->family));
  r.from_len = h->src_len;
  r.to_len = h->dst_len;
  r.iif = text(a[FRA_IIFNAME]);
  r.oif = text(a[FRA_OIFNAME]);
  r.mark = u32(a[FRA_FWMARK]);
  r.mark_mask = u32(a[FRA_FWMASK]);
  r.tos = h->tos;
  r.ip_proto = u8(a[FRA_IP_PROTO]);
  r.sport = port_range(a[FRA_SPORT_RANGE]);
  r.dport = port_range(a[FRA_DPORT_RANGE]);
  if (const nlattr* u = a[FRA_UID_RANGE];
      u != nullptr && attribute_length(u) >= static_cast<int>(sizeof(fib_rule_uid_range))) {
    fib_rule_uid_range range;
    std::memcpy(&range, attribute_data(u), sizeof range);
    r.has_uid = true;
    r.uid_from = range.start;
    r.uid_to = range.end;
  }
  if (a[FRA_SUPPRESS_PREFIXLEN] != nullptr)
    r.suppress_prefix_len = static_cast<int32_t>(u32(a[FRA_SUPPRESS_PREFIXLEN]));
  r.l3mdev = u8(a[FRA_L3MDEV]) != 0;
  const bool group =
      a[FRA_SUPPRESS_IFGROUP] != nullptr && u32(a[FRA_SUPPRESS_IFGROUP]) != UINT32_MAX;
  r.foreign = group || a[FRA_TUN_ID] != nullptr || a[FRA_FLOW] != nullptr;
  for (int type = kFraDscp; type <= kFraMax; ++type) {
    const bool whole_port =
        (type == kFraSportMask || type == kFraDportMask) && u16(a[type]) == 0xffff;
    if (a[type] != nullptr && !whole_port) r.foreign = true;
  }
  return r;
}

std::optional<Neighbour> parse_neighbour(const nlmsghdr& m) {
  const auto* h = header_of<ndmsg>(m);
  if (h == nullptr || !is_ip(h->ndm_family) || (h->ndm_flags & NTF_PROXY) != 0) return std::nullopt;
  const auto a = attributes_of<NDA_MAX>(m, h);
  const auto dst = address(a[NDA_DST], h->ndm_family);
  if (!dst) return std::nullopt;
  Neighbour n{.ifindex = IfIndex(static_cast<uint32_t>(h->ndm_ifindex)), .addr = *dst};
  n.state = static_cast<NeighbourState>(h->ndm_state & 0xff);
  read_mac(a[NDA_LLADDR], n.mac);
  return n;
}

int parse_error(const nlmsghdr& m) {
  if (m.nlmsg_len < NLMSG_LENGTH(sizeof(int))) return EBADMSG;
  int code;
  std::memcpy(&code, reinterpret_cast<const char*>(&m) + NLMSG_HDRLEN, sizeof code);
  return -code;
}

}  // namespace vireo::net
