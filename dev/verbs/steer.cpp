#include "dev/verbs/steer.h"

#include <algorithm>
#include <cstring>

namespace vireo::verbs {
namespace {

/// Appends flow specifications one after the other.
class Writer {
 public:
  explicit Writer(FlowRequest& r) : r_(r), at_(r.specs) {}
  template <class Spec>
  void add(Spec s, ibv_flow_spec_type type) {
    s.type = type;
    s.size = sizeof s;
    std::memcpy(at_, &s, sizeof s);
    at_ += sizeof s;
    ++r_.attr.num_of_specs;
    r_.attr.size = static_cast<uint16_t>(r_.attr.size + sizeof s);
  }

 private:
  FlowRequest& r_;
  std::byte* at_;
};

/// IEEE 802.1Q: the VLAN ID bits of a tag; priority and DEI are above.
constexpr uint16_t kVlanIdBits = 0x0fff;

std::array<uint8_t, 6> group_mac(const IpAddr& group) {
  const auto& b = group.bytes();
  if (group.is_v4()) return {0x01, 0x00, 0x5e, static_cast<uint8_t>(b[13] & 0x7f), b[14], b[15]};
  return {0x33, 0x33, b[12], b[13], b[14], b[15]};
}

bool is_named(const IpAddr& a) { return !a.is_unspecified(); }

void add_ethernet(Writer& w, const FlowKey& key, const std::optional<std::array<uint8_t, 6>>& mac) {
  ibv_flow_spec_eth eth{};
  const bool is_group = key.local.addr.is_multicast();
  // A rule for any address also takes broadcast and multicast, so it cannot match a MAC.
  if (is_group || (mac && is_named(key.local.addr))) {
    const auto dst = is_group ? group_mac(key.local.addr) : *mac;
    std::copy(dst.begin(), dst.end(), eth.val.dst_mac);
    std::fill_n(eth.mask.dst_mac, 6, uint8_t{0xff});
  }
  if (key.vlan.value() != 0) {
    eth.val.vlan_tag = be16(key.vlan.value()).raw();
    eth.mask.vlan_tag = be16(kVlanIdBits).raw();  // any priority
  }
  w.add(eth, IBV_FLOW_SPEC_ETH);
}

void add_ipv4(Writer& w, const FlowKey& key) {
  ibv_flow_spec_ipv4 ip{};
  const auto want = [](const IpAddr& a, uint32_t& val, uint32_t& mask) {
    if (!is_named(a)) return;
    val = a.as_v4().raw();
    mask = UINT32_MAX;
  };
  want(key.local.addr, ip.val.dst_ip, ip.mask.dst_ip);
  if (key.is_exact()) want(key.remote.addr, ip.val.src_ip, ip.mask.src_ip);
  w.add(ip, IBV_FLOW_SPEC_IPV4);
}

void add_ipv6(Writer& w, const FlowKey& key) {
  ibv_flow_spec_ipv6 ip{};
  const auto want = [](const IpAddr& a, uint8_t(&val)[16], uint8_t(&mask)[16]) {
    if (!is_named(a)) return;
    std::copy(a.bytes().begin(), a.bytes().end(), val);
    std::fill_n(mask, 16, uint8_t{0xff});
  };
  want(key.local.addr, ip.val.dst_ip, ip.mask.dst_ip);
  if (key.is_exact()) want(key.remote.addr, ip.val.src_ip, ip.mask.src_ip);
  w.add(ip, IBV_FLOW_SPEC_IPV6);
}

void add_ports(Writer& w, const FlowKey& key) {
  ibv_flow_spec_tcp_udp l4{};
  l4.val.dst_port = be16(key.local.port).raw();
  l4.mask.dst_port = UINT16_MAX;
  if (key.is_exact()) {
    l4.val.src_port = be16(key.remote.port).raw();
    l4.mask.src_port = UINT16_MAX;
  }
  w.add(l4, key.proto == IpProto::kTcp ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP);
}

}  // namespace

uint16_t priority_of(const FlowKey& key) {
  return key.is_exact() ? 0 : is_named(key.local.addr) ? 1 : 2;
}

FlowRequest flow_request(const FlowKey& key, uint8_t port,
                         const std::optional<std::array<uint8_t, 6>>& mac, FlowTag tag) {
  FlowRequest r{};
  r.attr.type = IBV_FLOW_ATTR_NORMAL;
  r.attr.size = sizeof r.attr;
  r.attr.port = port;
  r.attr.priority = priority_of(key);
  Writer w(r);
  add_ethernet(w, key, mac);
  key.v6 ? add_ipv6(w, key) : add_ipv4(w, key);
  add_ports(w, key);
  if (tag.value() != 0) {
    ibv_flow_spec_action_tag action{};
    action.tag_id = tag.value();
    w.add(action, IBV_FLOW_SPEC_ACTION_TAG);
  }
  return r;
}

}  // namespace vireo::verbs
