#include "stack/filter/ipsec.h"

#include <netinet/in.h>
// After the header above: else these define its names again.
#include <linux/xfrm.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/byteorder.h"
#include "stack/net/attributes.h"

namespace vireo::filter {
namespace {

IpAddr address(const xfrm_address_t& a, bool v6) {
  if (v6) {
    uint8_t bytes[16];
    std::memcpy(bytes, &a, sizeof bytes);
    return IpAddr::v6(bytes);
  }
  return IpAddr::v4(std::bit_cast<be32>(a.a4));
}

uint16_t host(uint16_t wire) { return std::bit_cast<be16>(wire); }

}  // namespace

Result<void> read_ipsec(Session& s, Ruleset& to) {
  const auto put = [&](const IpsecPolicy& policy) {  // of the same priority, the older goes first
    to.ipsec.insert(std::ranges::upper_bound(to.ipsec, policy.priority, {}, &IpsecPolicy::priority),
                    policy);
  };
  const auto take = [&](const nlmsghdr& m) {
    const auto* p = net::header_of<xfrm_userpolicy_info>(m);
    if (p == nullptr || m.nlmsg_type != XFRM_MSG_NEWPOLICY || p->dir > XFRM_POLICY_OUT) return;
    const auto a = net::attributes_of<XFRMA_MAX>(m, p);
    const bool v6 = p->sel.family == AF_INET6;
    const bool any_family = p->sel.family == AF_UNSPEC;
    IpsecPolicy policy{.inbound = p->dir == XFRM_POLICY_IN,
                       .passes = p->action == XFRM_POLICY_ALLOW && a[XFRMA_TMPL] == nullptr,
                       .priority = p->priority,
                       .v6 = v6,
                       .src = address(p->sel.saddr, v6),
                       .dst = address(p->sel.daddr, v6),
                       .src_len = p->sel.prefixlen_s,
                       .dst_len = p->sel.prefixlen_d,
                       .sport = host(p->sel.sport),
                       .sport_mask = host(p->sel.sport_mask),
                       .dport = host(p->sel.dport),
                       .dport_mask = host(p->sel.dport_mask),
                       .proto = p->sel.proto,
                       .ifindex = IfIndex(static_cast<uint32_t>(p->sel.ifindex))};
    put(policy);
    if (!any_family) return;
    policy.v6 = true;
    put(policy);
  };
  const auto question =
      net::Request(XFRM_MSG_GETPOLICY, NLM_F_REQUEST | NLM_F_DUMP, 1, xfrm_userpolicy_id{});
  if (auto ok = s.dump(question, take); !ok) return ok;
  return {};
}

}  // namespace vireo::filter
