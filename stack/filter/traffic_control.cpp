#include "stack/filter/traffic_control.h"

#include <linux/bpf.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <set>
#include <string_view>

#include "stack/net/attributes.h"

namespace vireo::filter {
namespace {

/// The filters of a shared block (tc(8), BLOCKS) are not read.
constexpr int kIngressBlock = TCA_INGRESS_BLOCK, kEgressBlock = TCA_EGRESS_BLOCK;

tcmsg of(IfIndex ifindex, uint32_t parent) {
  tcmsg m{};
  m.tcm_family = AF_UNSPEC;
  m.tcm_ifindex = static_cast<int>(ifindex.value());
  m.tcm_parent = parent;
  return m;
}

/// BPF programs attached to the interface without a qdisc (Linux 6.6; linux/bpf.h: BPF_TCX_*).
bool has_tcx(IfIndex ifindex, bool inbound) {
  constexpr uint32_t kTcxIngress = 46, kTcxEgress = 47;
  bpf_attr a{};
  a.query.target_fd = ifindex.value();
  a.query.attach_type = inbound ? kTcxIngress : kTcxEgress;
  return ::syscall(SYS_bpf, BPF_PROG_QUERY, &a, sizeof a) == 0 && a.query.prog_cnt != 0;
}

}  // namespace

Result<void> read_traffic_control(Session& s, Ruleset& to) {
  std::set<IfIndex> seen;
  std::vector<IfIndex> hooked;
  uint32_t seq = 0;
  constexpr uint16_t kFlags = NLM_F_REQUEST | NLM_F_DUMP;
  const auto qdisc = [&](const nlmsghdr& m) {
    const auto* h = net::header_of<tcmsg>(m);
    if (h == nullptr || m.nlmsg_type != RTM_NEWQDISC) return;
    const auto a = net::attributes_of<TCA_MAX>(m, h);
    if (a[TCA_KIND] == nullptr) return;
    seen.insert(IfIndex(static_cast<uint32_t>(h->tcm_ifindex)));
    const std::string_view kind = net::attribute_data(a[TCA_KIND]);
    if (kind != "clsact" && kind != "ingress") return;
    const IfIndex ifindex(static_cast<uint32_t>(h->tcm_ifindex));
    hooked.push_back(ifindex);
    if (a[kIngressBlock] != nullptr) to.traffic_control.push_back({ifindex, true});
    if (a[kEgressBlock] != nullptr) to.traffic_control.push_back({ifindex, false});
  };
  const auto asked = s.dump(net::Request(RTM_GETQDISC, kFlags, ++seq, of(IfIndex(), 0)), qdisc);
  if (!asked) return asked.error().code == EOPNOTSUPP ? Result<void>() : asked;
  for (const IfIndex ifindex : hooked) {
    for (const bool inbound : {true, false}) {
      const uint32_t parent = TC_H_MAKE(TC_H_CLSACT, inbound ? TC_H_MIN_INGRESS : TC_H_MIN_EGRESS);
      bool any = false;
      const auto filter = [&](const nlmsghdr& m) { any |= m.nlmsg_type == RTM_NEWTFILTER; };
      // A removed interface has none.
      (void)s.dump(net::Request(RTM_GETTFILTER, kFlags, ++seq, of(ifindex, parent)), filter);
      if (any) to.traffic_control.push_back({ifindex, inbound});
    }
  }
  for (const IfIndex ifindex : seen)
    for (const bool inbound : {true, false})
      if (has_tcx(ifindex, inbound)) to.traffic_control.push_back({ifindex, inbound});
  return {};
}

}  // namespace vireo::filter
