#include "tools/vireo-doctor/interfaces.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "dev/registry.h"
#include "dev/xdp/ethtool.h"
#include "stack/engine/engine.h"
#include "stack/net/lookup.h"
#include "tools/vireo-doctor/xdp_facts.h"
#include "tools/vireo-stat/scan.h"

namespace vireo::doctor {
namespace {

std::string namespace_of(const std::string& pid) {
  char to[64];
  const auto n = ::readlink(("/proc/" + pid + "/ns/net").c_str(), to, sizeof to);
  return n > 0 ? std::string(to, static_cast<size_t>(n)) : std::string();
}

/// The process that uses the interface; empty if none is visible.
std::string holder_of(IfIndex ifindex) {
  for (const ProcessReading& p : scan_processes(std::nullopt).processes)
    for (const PortReading& port : p.ports)
      if (port.ifindex == ifindex.value() &&
          namespace_of(std::to_string(p.pid)) == namespace_of("self"))
        return fmt::format("{} (pid {})", p.program, p.pid);
  return {};
}

std::string kind_of(const net::Link& l) {
  if (l.is_loopback()) return "loopback";
  return l.kind == net::LinkKind::kPhysical ? "physical" : l.kind_name;
}

void refuse(InterfaceLine& i, Carriage why, std::string detail, std::string remedy) {
  i.carried = false;
  i.why = why;
  i.detail = std::move(detail);
  i.remedy = std::move(remedy);
}

std::string guess_mode(const Settings& s, const net::Link& l,
                       const std::optional<uint64_t>& features) {
  if (s.device == DeviceChoice::kShm) return "shared memory";
  const bool of_members = l.kind == net::LinkKind::kBond || l.kind == net::LinkKind::kTeam;
  if (s.xdp_mode == XdpChoice::kGeneric || (of_members && s.xdp_mode == XdpChoice::kAuto))
    return "generic";
  if (!features)
    return s.xdp_mode == XdpChoice::kZeroCopy ? "native zero-copy" : "native or generic";
  const bool native = (*features & kXdpBasic) != 0 && (*features & kXdpRedirect) != 0;
  if (native && (*features & kXskZeroCopy) != 0 && s.xdp_mode != XdpChoice::kNative)
    return "native zero-copy";
  if (native) return s.xdp_mode == XdpChoice::kZeroCopy ? "" : "native copy";
  return s.xdp_mode == XdpChoice::kAuto ? "generic" : "";
}

/// Decides by the first refusal, in the library's order.
void decide(InterfaceLine& i, const Settings& s, const net::Link& l, std::span<const Check> host,
            const RdmaFindings& rdma) {
  if (l.is_loopback()) return refuse(i, Carriage::kLoopback, "", "");
  const RdmaTrial* const trial = rdma.trial_of(l.index);
  const bool not_by_xdp = is_rdma(s.device) || (trial != nullptr && trial->works());
  for (const Check& c : host)
    if (c.level == Level::kFail && !(c.of_xdp && not_by_xdp))
      return refuse(i, c.why, c.name + ": " + c.text, c.remedy);
  if (auto may = may_open(s, l); !may)
    return refuse(i, may.error().why, may.error().where,
                  "name it in VIREO_INTERFACES if it shall be carried");
  if (!l.is_up())
    return refuse(i, Carriage::kInterface, "it is down", fmt::format("ip link set {} up", l.name));
  if (!has(l.flags, net::LinkFlags::kEthernet))
    return refuse(i, Carriage::kInterface, "not an Ethernet interface", "");
  if (i.addresses.empty())
    return refuse(i, Carriage::kInterface, "it has no address",
                  fmt::format("ip address add ADDRESS/LENGTH dev {}", l.name));
  if (trial != nullptr && trial->works()) {
    i.carried = i.tried = true;
    i.why = Carriage::kCarried;
    i.mode = trial->mode;
    return;
  }
  if (is_rdma(s.device) && trial != nullptr)
    return refuse(i, trial->why(), trial->detail(), rdma.remedy_of(l.index));
  if (is_rdma(s.device))
    return refuse(i, Carriage::kDevice, "no RDMA device belongs to it",
                  "VIREO_DEVICE=auto carries it by AF_XDP");
  if (trial != nullptr)
    i.notes.push_back(fmt::format("not by its RDMA device: {}", trial->detail()));
  if (s.device != DeviceChoice::kShm) {
    const Attached taken = attached_program(l.index);
    if (taken.program != 0) {
      const std::string holder = holder_of(l.index);
      if (holder.empty())
        return refuse(
            i, Carriage::kDeviceBusy,
            fmt::format("BPF program {} is attached ({})", taken.program, taken.how),
            fmt::format("bpftool prog show id {}; ip link set {} xdp off", taken.program, l.name));
      if (!group_opener(s))
        return refuse(i, Carriage::kDeviceBusy, fmt::format("carried for {} now", holder),
                      s.group_bytes.value() == 0
                          ? "VIREO_GROUP_BYTES=0 shares it with no other process: unset it"
                          : "before Linux 6.4 one process at a time has an interface");
      i.shared = true;
      i.notes.push_back(fmt::format("shared with {}", holder));
    }
  }
  i.mode = guess_mode(s, l, xdp_features(l.index));
  if (i.mode.empty())
    return refuse(i, Carriage::kDevice, "its driver does not have what VIREO_XDP_MODE asks for",
                  "unset VIREO_XDP_MODE");
  i.carried = true;
  i.why = Carriage::kCarried;
}

void add_notes(InterfaceLine& i, const net::Link& l, const net::Links& all, const Settings& s) {
  constexpr uint32_t kOneFrame = 2048 - 256 - 22;  // a frame, less the kernel's headroom and L2
  if (s.device == DeviceChoice::kShm) return;
  const auto features = xdp_features(l.index);
  if (l.mtu > kOneFrame && features && (*features & kXdpRxSg) == 0)
    i.notes.push_back(
        fmt::format("MTU {} is more than a frame of the packet memory and the driver cannot chain "
                    "them: larger packets than {} bytes are not carried",
                    l.mtu, kOneFrame));
  if (s.ring_allocation_logic_rx != RingLogic::kInterface)
    i.notes.emplace_back(
        "VMA_RING_ALLOCATION_LOGIC_RX has no effect: only verbs and mlx5 have several rings");
  if (i.mode == "generic")
    i.notes.emplace_back("generic mode works on any driver, at about the kernel's own speed");
  // A virtual interface receives tagged frames only for VLANs that exist.
  if (const auto facts = xdp::describe(l.index);
      facts && facts->hides_tags != nullptr && (all.has_vlans(l.index) || !facts->is_virtual))
    i.notes.push_back(
        fmt::format("{} (XDP sees such frames as untagged ones: beside a VLAN on it sockets that "
                    "name one of them are the kernel's, others may get what is for another VLAN)",
                    facts->hides_tags));
  if (i.queues > 1)
    i.notes.push_back(
        fmt::format("the NIC spreads flows over {} queues, all of which are polled; "
                    "fewer are faster: ethtool -L {} combined 1",
                    i.queues, l.name));
}

std::string_view neighbour_text(net::NeighbourState s) {
  return net::is_usable(s) ? "known" : "to be asked for";
}

}  // namespace

std::vector<InterfaceLine> check_interfaces(const Settings& s, const net::Snapshot& net,
                                            std::span<const Check> host, const RdmaFindings& rdma) {
  std::vector<InterfaceLine> out;
  for (const net::Link& l : net.links->all) {
    InterfaceLine i;
    i.name = l.name;
    i.kind = kind_of(l);
    i.driver = driver_of(l.name);
    i.up = l.is_up();
    i.mtu = l.mtu;
    if (const auto facts = xdp::describe(l.index)) i.queues = facts->queues;
    const net::Link* const lower =
        l.kind == net::LinkKind::kVlan ? net.links->find(l.lower) : nullptr;
    for (const net::Addr& a : net.addrs->all) {
      const net::Link* const owner = net.links->find(a.ifindex);
      const bool tagged =
          owner != nullptr && owner->kind == net::LinkKind::kVlan && owner->lower == l.index;
      if (a.ifindex == l.index)
        i.addresses.push_back(fmt::format("{}/{}", a.addr.str(), a.prefix_len));
      else if (tagged)
        i.addresses.push_back(fmt::format("{} on {}", a.addr.str(), owner->name));
    }
    decide(i, s, lower != nullptr ? *lower : l, host, rdma);
    if (lower != nullptr)
      i.notes.push_back(fmt::format("its frames are {}'s, tagged", lower->name));
    if (i.carried && rdma.trial_of(lower != nullptr ? lower->index : l.index) == nullptr)
      add_notes(i, lower != nullptr ? *lower : l, *net.links, s);
    out.push_back(std::move(i));
  }
  return out;
}

void try_interfaces(const Settings& s, net::Mirror& mirror, std::vector<InterfaceLine>& all) {
  net::SnapshotStore::Reader reader(mirror.store());
  EngineConfig config;
  config.arena_bytes = s.arena_bytes;
  config.huge_pages = s.mem_alloc_type == MemAlloc::kHuge;
  // As a member of the group, only where it exists: a process that would find us as the only member
  // would wait in vain.
  std::shared_ptr<DeviceGroup> group;
  std::unique_ptr<Engine> in_group;
  const auto group_stats = std::make_unique<EngineStats>();
  std::string no_group;
  if (std::ranges::any_of(all, &InterfaceLine::shared)) {
    auto entered = group_opener(s)();
    if (entered) {
      group = std::move(*entered);
      in_group = Engine::create_on(group->take_arena(), EngineId(0), config, device_opener(s),
                                   mirror, {}, *group_stats);
    } else {
      no_group = fmt::format("{}: {}", entered.error().where, std::strerror(entered.error().code));
    }
  }
  for (InterfaceLine& i : all) {
    if (!i.carried) continue;
    const net::Link* const link = reader.snapshot().links->find(i.name);
    if (link == nullptr) continue;
    i.tried = true;
    const auto stats = std::make_unique<EngineStats>();
    std::unique_ptr<Engine> alone;
    Engine* engine = in_group.get();
    if (!i.shared) {
      auto made = Engine::create(EngineId(0), config, device_opener(s), mirror, {}, *stats);
      if (!made) {
        refuse(i, carriage_of_errno(made.error().code), made.error().where, "");
        continue;
      }
      alone = std::move(*made);
      engine = alone.get();
    } else if (engine == nullptr) {
      refuse(i, Carriage::kDeviceBusy, no_group, "");
      continue;
    }
    for (const net::Addr& a : reader.snapshot().addrs->all) {
      if (a.ifindex != link->index) continue;
      engine->lock().lock();
      const auto port = engine->ports().of_address(a.addr);
      if (port)
        i.mode = (*port)->device->caps().mode;
      else
        refuse(i, port.error().why,
               port.error().err != 0
                   ? fmt::format("{}: {}", port.error().where, std::strerror(port.error().err))
                   : port.error().where,
               std::string(carriage_text(port.error().why)));
      engine->unlock();
      break;
    }
  }
}

RouteLine check_route(const Settings& s, const Rules& rules, const std::string& program,
                      const net::Snapshot& net, const Endpoint& to,
                      std::span<const InterfaceLine> interfaces) {
  RouteLine r;
  r.destination = to.port != 0 ? to.str() : to.addr.str();
  const auto no = [&](Carriage why, std::string detail) {
    r.carried = false;
    r.why = why;
    r.detail = std::move(detail);
    return r;
  };
  if (to.addr.is_loopback()) return no(Carriage::kLoopback, "");
  net::LookupKey key;
  key.dst = to.addr;
  key.oif = IfIndex(to.scope);
  key.dport = to.port;
  const auto hop = net::resolve(net, key);
  if (!hop)
    return no(Carriage::kNoRoute,
              fmt::format("{}: {}", hop.error().where, std::strerror(hop.error().code)));
  if (const net::Link* l = net.links->find(hop->ifindex)) r.interface = l->name;
  r.source = hop->src.str();
  r.via = hop->via.str();
  r.neighbour = neighbour_text(hop->neighbour);
  if (hop->kind == net::DestKind::kLocal) return no(Carriage::kLoopback, "an address of this host");
  if (hop->kind == net::DestKind::kBroadcast) return no(Carriage::kBroadcast, "");
  const net::Link* const carrier = net.links->find(hop->carrier);
  if (carrier == nullptr) return no(Carriage::kInterface, "no Ethernet interface beneath");
  const auto line = std::ranges::find(interfaces, carrier->name, &InterfaceLine::name);
  if (line == interfaces.end()) return no(Carriage::kInterface, "interface gone");
  if (!line->carried) return no(line->why, line->detail);
  const Endpoint from{hop->src, 0, 0};
  struct {
    Role role;
    const char* name;
  } constexpr kRoles[] = {{Role::kTcpClient, "tcp_client"},
                          {Role::kUdpConnect, "udp_connect"},
                          {Role::kUdpSender, "udp_sender"}};
  unsigned carried = 0;
  for (const auto& [role, name] : kRoles) {
    if (rules.lookup(program, s.application_id, role, from, to) == Transport::kVireo)
      ++carried;
    else
      r.notes.push_back(fmt::format("the rules file leaves {} to the kernel", name));
  }
  if (carried == 0) return no(Carriage::kRule, "");
  r.carried = true;
  return r;
}

}  // namespace vireo::doctor
