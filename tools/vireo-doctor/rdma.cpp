#include "tools/vireo-doctor/rdma.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/arena.h"
#include "core/packet.h"
#include "dev/device.h"
#include "dev/registry.h"

namespace vireo::doctor {
namespace {

bool is_asked(const Settings& s) { return s.device == DeviceChoice::kAuto || is_rdma(s.device); }

bool kernel_has_devices() {
  std::error_code ec;
  return std::filesystem::directory_iterator("/sys/class/infiniband", ec) !=
         std::filesystem::directory_iterator();
}

/// The first ConnectX or BlueField interface without an RDMA device; empty: none.
std::string nic_without_rdma(const net::Snapshot& net) {
  constexpr unsigned kMellanox = 0x15b3;
  for (const net::Link& l : net.links->all) {
    unsigned vendor = 0;
    std::ifstream(fmt::format("/sys/class/net/{}/device/vendor", l.name)) >> std::hex >> vendor;
    if (vendor == kMellanox && !has_rdma(l)) return l.name;
  }
  return {};
}

Check check_library(Level missing, const Result<std::string>& file) {
  if (file) return {Level::kOk, "libibverbs", *file, "", {}};
  if (missing == Level::kNote && !kernel_has_devices())
    return {Level::kOk, "libibverbs", "not needed: there is no RDMA device", "", {}};
  return {
      missing, "libibverbs", verbs::libibverbs_failure(),
      "install it with its providers: apt-get install ibverbs-providers, dnf install libibverbs",
      Carriage::kDevice};
}

Check check_devices(Level missing, const Result<std::vector<verbs::DeviceFacts>>& all,
                    const net::Snapshot& net) {
  if (all && !all->empty()) {
    std::string names;
    for (const verbs::DeviceFacts& d : *all) names += (names.empty() ? "" : ", ") + d.name;
    return {Level::kOk, "RDMA devices", names, "", {}};
  }
  if (kernel_has_devices())
    return {missing, "RDMA devices", "the kernel has some, libibverbs shows none",
            "apt-get install ibverbs-providers; modprobe ib_uverbs; in a container "
            "--device=/dev/infiniband",
            Carriage::kDevice};
  const std::string nic = nic_without_rdma(net);
  if (!nic.empty())
    return {missing, "RDMA devices", fmt::format("none, though {} could have one", nic),
            "modprobe mlx5_ib (mlx4_ib for ConnectX-3); rdma link shows the outcome",
            Carriage::kDevice};
  if (missing == Level::kNote) return {Level::kOk, "RDMA devices", "none", "", {}};
  return {missing, "RDMA devices", "none",
          "VIREO_DEVICE=auto carries by AF_XDP what has no RDMA device", Carriage::kDevice};
}

struct AskedRule {
  std::string_view name;
  bool is_needed;
  FlowKey key;
};

/// One rule of each kind that the engine requests, with documentation addresses and port 9, discard
/// (RFC 863).
std::vector<AskedRule> asked_rules() {
  const auto at = [](const char* text) { return Endpoint{*IpAddr::parse(text), 9, 0}; };
  const Endpoint none{};
  const VlanId vlan{};
  return {
      {"5-tuple", true, {IpProto::kTcp, false, vlan, at("192.0.2.1"), at("192.0.2.2")}},
      {"3-tuple", true, {IpProto::kUdp, false, vlan, at("192.0.2.1"), none}},
      {"port", true, {IpProto::kUdp, false, vlan, at("0.0.0.0"), none}},
      {"multicast", false, {IpProto::kUdp, false, vlan, at("233.252.0.1"), none}},
      {"IPv6", false, {IpProto::kTcp, true, vlan, at("2001:db8::1"), at("2001:db8::2")}},
  };
}

RdmaTrial try_interface(const Settings& s, const net::Link& link) {
  RdmaTrial t;
  t.ifindex = link.index;
  t.interface = link.name;
  const auto refused = [&t](int error, const char* where) {
    t.error = error != 0 ? error : EIO;
    t.where = where;
    return t;
  };
  Settings by_rdma = s;
  if (!is_rdma(s.device))
    by_rdma.device = DeviceChoice::kMlx5;  // as in the library: mlx5, or verbs on other devices
  auto arena = Arena::create(static_cast<size_t>(static_cast<int64_t>(s.arena_bytes)),
                             s.mem_alloc_type == MemAlloc::kHuge);
  if (!arena) return refused(arena.error().code, arena.error().where);
  const auto opener = device_opener(by_rdma);
  auto device = opener(link, *arena);
  if (!device) return refused(device.error().err, device.error().where);
  PacketPool pool(arena->bytes(), 2048);
  auto queue = (*device)->open_queue(QueueId(0), pool);
  if (!queue) return refused(queue.error().code, queue.error().where);
  t.mode = (*device)->caps().mode;
  t.inline_bytes = (*device)->caps().inline_bytes;
  t.tso_max_bytes = (*device)->caps().tso_max_bytes;
  for (const AskedRule& r : asked_rules()) {
    const auto rule = (*device)->steer(r.key, FlowTag(1), **queue);
    t.rules.push_back({r.name, r.is_needed, rule ? 0 : rule.error().code});
  }
  return t;
}

bool is_tied(const std::vector<verbs::DeviceFacts>& all, IfIndex ifindex) {
  for (const verbs::DeviceFacts& d : all)
    for (const verbs::PortFacts& p : d.ports)
      for (const verbs::TiedInterface& i : p.interfaces)
        if (i.interface.index == ifindex) return true;
  return false;
}

}  // namespace

const RdmaTrial* RdmaFindings::trial_of(IfIndex ifindex) const {
  const auto t = std::ranges::find(trials, ifindex, &RdmaTrial::ifindex);
  return t != trials.end() ? &*t : nullptr;
}

std::string RdmaFindings::remedy_of(IfIndex ifindex) const {
  const auto t = std::ranges::find(trials, ifindex, &RdmaTrial::ifindex);
  return t != trials.end() ? remedies[static_cast<size_t>(t - trials.begin())] : std::string();
}

RdmaFindings check_rdma(const Settings& s, const net::Snapshot& net) {
  RdmaFindings out;
  if (!is_asked(s)) return out;
  // If AF_XDP replaces what is missing, it is only a note.
  const Level missing = is_rdma(s.device) ? Level::kFail : Level::kNote;
  const auto file = verbs::libibverbs_file();
  out.checks.push_back(check_library(missing, file));
  if (!file) return out;

  std::vector<verbs::NamedInterface> interfaces;
  for (const net::Link& l : net.links->all)
    if (!l.is_loopback()) interfaces.push_back({l.index, l.name});
  const auto devices = verbs::inventory(interfaces);
  out.checks.push_back(check_devices(missing, devices, net));
  if (!devices) return out;

  for (const net::Link& l : net.links->all) {
    const bool would = is_rdma(s.device) ? is_tied(*devices, l.index) : has_rdma(l);
    if (would && l.is_up() && may_open(s, l)) out.trials.push_back(try_interface(s, l));
  }
  out.remedies.resize(out.trials.size());
  for (const verbs::DeviceFacts& d : *devices) {
    const PciFacts pci = pci_facts(d.sysfs);
    out.devices.push_back(judge(
        d, pci, out.trials, static_cast<uint32_t>(static_cast<int64_t>(s.tx_max_inline)), missing));
    for (size_t i = 0; i < out.trials.size(); ++i)
      if (is_tied({d}, out.trials[i].ifindex))
        out.remedies[i] = remedy_of(out.trials[i], pci.driver);
  }
  return out;
}

}  // namespace vireo::doctor
