#include "stack/filter/traffic_control.h"

#include <linux/bpf.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

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

/// A BPF program attached to an interface without a qdisc. Each attachment by a link has a new one.
using Attached = std::pair<uint32_t, uint32_t>;  ///< program, link or 0

/// What bpf(2) BPF_PROG_QUERY takes and returns (linux/bpf.h of Linux 6.6).
struct TcxQuery {
  uint32_t ifindex, type;
  uint32_t flags = 0, attach_flags = 0;
  uint64_t programs;
  uint32_t count, unused = 0;
  uint64_t program_flags = 0;
  uint64_t links;
  uint64_t link_flags = 0, revision = 0;
};

std::vector<Attached> tcx_programs(IfIndex ifindex, bool inbound, const IsOwnProgram& is_own) {
  constexpr uint32_t kTcxIngress = 46, kTcxEgress = 47, kMost = 64;
  uint32_t programs[kMost] = {}, links[kMost] = {};
  TcxQuery q{.ifindex = ifindex.value(),
             .type = inbound ? kTcxIngress : kTcxEgress,
             .programs = reinterpret_cast<uintptr_t>(programs),
             .count = kMost,
             .links = reinterpret_cast<uintptr_t>(links)};
  std::vector<Attached> all;
  if (::syscall(SYS_bpf, BPF_PROG_QUERY, &q, sizeof q) == 0)
    for (uint32_t i = 0; i < std::min(q.count, kMost); ++i)
      if (!is_own || !is_own(programs[i])) all.emplace_back(programs[i], links[i]);
  return all;
}

/// Programs that are there to stay: a process under Vireo has one there for some milliseconds
/// (dev/xdp/kernel_listener.h).
bool has_tcx(IfIndex ifindex, bool inbound, const IsOwnProgram& is_own) {
  const auto before = tcx_programs(ifindex, inbound, is_own);
  if (before.empty()) return false;
  constexpr timespec kLonger{0, 100'000'000};
  ::syscall(SYS_nanosleep, &kLonger, nullptr);
  return std::ranges::any_of(tcx_programs(ifindex, inbound, is_own), [&](const Attached& a) {
    return std::ranges::find(before, a) != before.end();
  });
}

}  // namespace

Result<void> read_traffic_control(Session& s, Ruleset& to, const IsOwnProgram& is_own) {
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
      if (has_tcx(ifindex, inbound, is_own)) to.traffic_control.push_back({ifindex, inbound});
  return {};
}

}  // namespace vireo::filter
