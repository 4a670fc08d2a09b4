#include "tools/vireo-doctor/packet_filter.h"

#include <fmt/format.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/fd.h"
#include "stack/filter/judge.h"

namespace vireo::doctor {
namespace {

constexpr const char* kName = "packet filter";

size_t hooked_chains(const filter::Ruleset& rules) {
  size_t n = 0;
  for (const filter::Table& t : rules.tables)
    n += static_cast<size_t>(std::ranges::count_if(t.chains, [](const filter::Chain& c) {
      return c.hook.value_or(filter::Hook::kOther) != filter::Hook::kOther;
    }));
  return n;
}

std::string text_of(const filter::Ruleset& rules) {
  std::string text;
  const auto add = [&](size_t n, const char* what) {
    if (n != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, what);
  };
  add(hooked_chains(rules), "chains at hooks of this host's packets");
  add(rules.traffic_control.size(), "interfaces with filters of tc");
  add(rules.ipsec.size(), "IPsec policies");
  return text;
}

}  // namespace

bool is_own_program(uint32_t program) {
  bpf_attr by{};
  by.prog_id = program;
  const auto fd =
      UniqueFd(static_cast<int>(::syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, &by, sizeof by)));
  if (!fd) return false;
  bpf_prog_info info{};
  bpf_attr ask{};
  ask.info.bpf_fd = static_cast<uint32_t>(fd.get());
  ask.info.info_len = sizeof info;
  ask.info.info = reinterpret_cast<uintptr_t>(&info);
  if (::syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &ask, sizeof ask) != 0) return false;
  return std::string_view(info.name, strnlen(info.name, sizeof info.name)) == "vireo_marks";
}

Check check_packet_filter(const Settings& s, const filter::Ruleset& rules) {
  if (rules.unreadable != 0)
    return {Level::kNote, kName,
            fmt::format("its rules cannot be read ({}): sockets are carried whatever they say",
                        std::strerror(rules.unreadable)),
            "CAP_NET_ADMIN, or VIREO_RESPECT_FILTER=0 if that is as it should be",
            Carriage::kFilter};
  const std::string text = text_of(rules);
  if (text.empty()) return {Level::kOk, kName, "it has no rules", "", Carriage::kFilter};
  if (!s.respect_filter)
    return {Level::kNote, kName, text + "; what is carried passes them by (VIREO_RESPECT_FILTER=0)",
            "", Carriage::kFilter};
  return {Level::kNote, kName,
          text + "; a socket whose packets they would refuse, or may, stays on the kernel", "",
          Carriage::kFilter};
}

void note_packet_filter(const Settings& s, const filter::Ruleset& rules, const net::Snapshot& net,
                        std::vector<InterfaceLine>& interfaces) {
  if (!s.respect_filter) return;
  for (InterfaceLine& i : interfaces) {
    const net::Link* const link = net.links->find(i.name);
    if (!i.carried || link == nullptr) continue;
    for (const IpProto proto : {IpProto::kTcp, IpProto::kUdp}) {
      for (const bool v6 : {false, true}) {
        const auto by = filter::obstacle(rules, {.proto = proto,
                                                 .v6 = v6,
                                                 .local = {v6 ? IpAddr() : IpAddr::any_v4(), 0},
                                                 .interface = {link->index, link->name},
                                                 .begins_there = true});
        if (!by) continue;
        i.notes.push_back(fmt::format("{} over {}: some ports, or all, stay on the kernel: {}",
                                      proto == IpProto::kTcp ? "listeners" : "UDP sockets",
                                      v6 ? "IPv6" : "IPv4", *by));
      }
    }
  }
}

void judge_route(const Settings& s, const filter::Ruleset& rules, const net::Snapshot& net,
                 const Endpoint& to, RouteLine& route) {
  if (!s.respect_filter || !route.carried) return;
  const net::Link* const link = net.links->find(route.interface);
  const auto from = IpAddr::parse(route.source);
  if (link == nullptr || !from) return;
  const auto by = [&](IpProto proto) {
    return filter::obstacle(rules, {.proto = proto,
                                    .v6 = !to.addr.is_v4(),
                                    .local = {*from, 0},
                                    .remote = to,
                                    .interface = {link->index, link->name},
                                    .begins_here = true});
  };
  if (const auto udp = by(IpProto::kUdp))
    route.notes.push_back(fmt::format("UDP stays on the kernel: {}", *udp));
  const auto tcp = by(IpProto::kTcp);
  if (!tcp) return;
  if (to.port == 0) {
    route.notes.push_back(fmt::format("TCP to some ports, or all, stays on the kernel: {}", *tcp));
    return;
  }
  route.carried = false;
  route.why = Carriage::kFilter;
  route.detail = *tcp;
}

}  // namespace vireo::doctor
