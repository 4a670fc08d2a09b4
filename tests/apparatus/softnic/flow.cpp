#include "tests/apparatus/softnic/flow.h"

#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace vireo::softnic {
namespace {

constexpr uint32_t kMaxTag = 0xffffff;  // a completion has 24 bits for it

/// True if `value` and `want` agree in the bits of `mask`.
template <class T>
bool agrees(const T& value, const T& want, const T& mask) {
  const auto* v = reinterpret_cast<const uint8_t*>(&value);
  const auto* w = reinterpret_cast<const uint8_t*>(&want);
  const auto* m = reinterpret_cast<const uint8_t*>(&mask);
  for (size_t i = 0; i < sizeof(T); ++i)
    if (((v[i] ^ w[i]) & m[i]) != 0) return false;
  return true;
}

template <class T>
T loaded(const std::array<uint8_t, 16>& from) {
  T v;
  std::memcpy(&v, from.data(), sizeof v);
  return v;
}

bool matches(const ibv_flow_spec& s, const Headers& h) {
  switch (s.hdr.type) {
    case IBV_FLOW_SPEC_ETH: {
      ibv_flow_eth_filter f{};
      std::copy(h.dst_mac.begin(), h.dst_mac.end(), f.dst_mac);
      std::copy(h.src_mac.begin(), h.src_mac.end(), f.src_mac);
      f.ether_type = __builtin_bswap16(h.ether_type);
      f.vlan_tag = __builtin_bswap16(h.vlan_tag);
      return agrees(f, s.eth.val, s.eth.mask);
    }
    case IBV_FLOW_SPEC_IPV4: {
      const ibv_flow_ipv4_filter f{loaded<uint32_t>(h.src), loaded<uint32_t>(h.dst)};
      return h.ip == Ip::k4 && agrees(f, s.ipv4.val, s.ipv4.mask);
    }
    case IBV_FLOW_SPEC_IPV4_EXT: {
      ibv_flow_ipv4_ext_filter f{};
      f.src_ip = loaded<uint32_t>(h.src);
      f.dst_ip = loaded<uint32_t>(h.dst);
      f.proto = h.proto;
      f.tos = h.tos;
      f.ttl = h.ttl;
      return h.ip == Ip::k4 && agrees(f, s.ipv4_ext.val, s.ipv4_ext.mask);
    }
    case IBV_FLOW_SPEC_IPV6: {
      ibv_flow_ipv6_filter f{};  // compared by member: it ends in padding
      std::copy(h.src.begin(), h.src.end(), f.src_ip);
      std::copy(h.dst.begin(), h.dst.end(), f.dst_ip);
      const ibv_flow_ipv6_filter &v = s.ipv6.val, &m = s.ipv6.mask;
      return h.ip == Ip::k6 && agrees(f.src_ip, v.src_ip, m.src_ip) &&
             agrees(f.dst_ip, v.dst_ip, m.dst_ip) &&
             agrees(h.flow_label, v.flow_label, m.flow_label) &&
             agrees(h.proto, v.next_hdr, m.next_hdr) &&
             agrees(h.tos, v.traffic_class, m.traffic_class) &&
             agrees(h.ttl, v.hop_limit, m.hop_limit);
    }
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP: {
      const uint8_t proto = s.hdr.type == IBV_FLOW_SPEC_TCP ? IPPROTO_TCP : IPPROTO_UDP;
      const ibv_flow_tcp_udp_filter f{h.dst_port, h.src_port};
      return h.l4_bytes > 0 && h.proto == proto && agrees(f, s.tcp_udp.val, s.tcp_udp.mask);
    }
    default:
      return true;  // an action
  }
}

/// Bytes of a spec of this type; 0: not one that we have.
size_t size_of(ibv_flow_spec_type type) {
  switch (type) {
    case IBV_FLOW_SPEC_ETH:
      return sizeof(ibv_flow_spec_eth);
    case IBV_FLOW_SPEC_IPV4:
      return sizeof(ibv_flow_spec_ipv4);
    case IBV_FLOW_SPEC_IPV4_EXT:
      return sizeof(ibv_flow_spec_ipv4_ext);
    case IBV_FLOW_SPEC_IPV6:
      return sizeof(ibv_flow_spec_ipv6);
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
      return sizeof(ibv_flow_spec_tcp_udp);
    case IBV_FLOW_SPEC_ACTION_DROP:
      return sizeof(ibv_flow_spec_action_drop);
    case IBV_FLOW_SPEC_ACTION_TAG:
      return sizeof(ibv_flow_spec_action_tag);
    default:
      return 0;
  }
}

bool goes_before(const Flow* a, const Flow* b) {
  return a->priority != b->priority ? a->priority < b->priority : a->age < b->age;
}

bool all_match(const Flow& f, const Headers& h) {
  return std::all_of(f.specs.begin(), f.specs.end(),
                     [&](const ibv_flow_spec& s) { return matches(s, h); });
}

/// A field of a rule that is asked for whole (true), or not at all; nullopt: in part.
template <class T>
std::optional<bool> is_asked(const T& mask) {
  const auto* m = reinterpret_cast<const uint8_t*>(&mask);
  const auto all = [&](uint8_t byte) {
    return std::all_of(m, m + sizeof mask, [&](uint8_t b) { return b == byte; });
  };
  if (all(0xff)) return true;
  if (all(0)) return false;
  return std::nullopt;
}

/// One side's address or port, as a rule names it. @return false: in part.
bool name(Endpoint& side, uint32_t address, uint32_t mask) {
  const auto asked = is_asked(mask);
  if (asked == true) side.addr = IpAddr::v4(std::bit_cast<be32>(address));
  return asked.has_value();
}

bool name(Endpoint& side, const uint8_t (&address)[16], const uint8_t (&mask)[16]) {
  const auto asked = is_asked(mask);
  if (asked == true) side.addr = IpAddr::v6(address);
  return asked.has_value();
}

bool name(Endpoint& side, uint16_t port, uint16_t mask) {
  if (mask == UINT16_MAX) side.port = __builtin_bswap16(port);
  return mask == UINT16_MAX || mask == 0;
}

}  // namespace

std::optional<FlowKey> key_of(const Flow& flow) {
  if (flow.kind != IBV_FLOW_ATTR_NORMAL || flow.drops) return std::nullopt;
  FlowKey key;
  bool plain = true, has_ip = false, has_ports = false;
  for (const ibv_flow_spec& s : flow.specs) {
    switch (s.hdr.type) {
      case IBV_FLOW_SPEC_ETH:  // the address that is asked for behind it is the same host's
        break;
      case IBV_FLOW_SPEC_IPV4:
        has_ip = true;
        plain &= name(key.local, s.ipv4.val.dst_ip, s.ipv4.mask.dst_ip) &&
                 name(key.remote, s.ipv4.val.src_ip, s.ipv4.mask.src_ip);
        break;
      case IBV_FLOW_SPEC_IPV6:
        key.v6 = has_ip = true;
        plain &= name(key.local, s.ipv6.val.dst_ip, s.ipv6.mask.dst_ip) &&
                 name(key.remote, s.ipv6.val.src_ip, s.ipv6.mask.src_ip);
        break;
      case IBV_FLOW_SPEC_TCP:
      case IBV_FLOW_SPEC_UDP:
        has_ports = true;
        key.proto = s.hdr.type == IBV_FLOW_SPEC_TCP ? IpProto::kTcp : IpProto::kUdp;
        plain &= name(key.local, s.tcp_udp.val.dst_port, s.tcp_udp.mask.dst_port) &&
                 name(key.remote, s.tcp_udp.val.src_port, s.tcp_udp.mask.src_port);
        break;
      default:
        plain = false;
    }
  }
  const bool whole = key.local.port != 0 &&
                     (key.remote.port == 0) == key.remote.addr.is_unspecified() &&
                     !(key.is_exact() && key.local.addr.is_unspecified());
  if (!plain || !has_ip || !has_ports || !whole) return std::nullopt;
  return key;
}

bool asks_vlan(const Flow& flow) {
  return std::ranges::any_of(flow.specs, [](const ibv_flow_spec& s) {
    return s.hdr.type == IBV_FLOW_SPEC_ETH && s.eth.mask.vlan_tag != 0;
  });
}

std::expected<Flow*, int> FlowTable::add(Qp& qp, const ibv_flow_attr& attr) {
  if (attr.port != 1 || attr.comp_mask != 0) return std::unexpected(EINVAL);
  if (attr.flags != 0) return std::unexpected(EOPNOTSUPP);
  if (attr.type != IBV_FLOW_ATTR_NORMAL && attr.num_of_specs != 0) return std::unexpected(EINVAL);
  auto flow = std::make_unique<Flow>();
  flow->qp = &qp;
  flow->kind = attr.type;
  flow->priority = attr.priority;
  const auto* at = reinterpret_cast<const uint8_t*>(&attr + 1);
  const auto* const end = reinterpret_cast<const uint8_t*>(&attr) + attr.size;
  for (unsigned i = 0; i < attr.num_of_specs; ++i) {
    ibv_flow_spec spec{};
    if (end - at < static_cast<ptrdiff_t>(sizeof spec.hdr)) return std::unexpected(EINVAL);
    std::memcpy(&spec.hdr, at, sizeof spec.hdr);
    const size_t size = size_of(spec.hdr.type);
    if (size == 0) return std::unexpected(EOPNOTSUPP);
    if (spec.hdr.size != size || end - at < static_cast<ptrdiff_t>(size))
      return std::unexpected(EINVAL);
    std::memcpy(&spec, at, size);
    at += size;
    if (spec.hdr.type == IBV_FLOW_SPEC_ACTION_DROP) {
      flow->drops = true;
    } else if (spec.hdr.type == IBV_FLOW_SPEC_ACTION_TAG) {
      if (spec.flow_tag.tag_id > kMaxTag) return std::unexpected(EINVAL);
      flow->tag = spec.flow_tag.tag_id;
    } else {
      flow->specs.push_back(spec);
    }
  }
  flow->age = ++last_age_;
  Chain* const chain = chain_of(*flow);
  if (chain == nullptr) return std::unexpected(ENOMEM);
  chain->insert(std::upper_bound(chain->begin(), chain->end(), flow.get(), goes_before),
                flow.get());
  Flow* const added = flow.get();
  flows_.emplace(added, std::move(flow));
  return added;
}

/// Where the rule stands, or is to stand; nullptr: there is no memory for it.
FlowTable::Chain* FlowTable::chain_of(const Flow& flow) {
  const auto key = key_of(flow);
  if (!key) return &others_;
  if (Keyed* k = keyed_.find(DemuxKey::of(*key))) return &k->flows;
  const auto id = keyed_.add(*key);
  if (!id) return nullptr;
  Keyed& k = *keyed_.get(*id);
  k.id = *id;
  return &k.flows;
}

void FlowTable::remove(Flow* flow) {
  std::erase(*chain_of(*flow), flow);
  if (const auto key = key_of(*flow))
    if (const Keyed* k = keyed_.find(DemuxKey::of(*key)); k != nullptr && k->flows.empty())
      keyed_.remove(k->id);
  flows_.erase(flow);
}

bool FlowTable::has_rules_of(const Qp& qp) const {
  return std::any_of(flows_.begin(), flows_.end(),
                     [&](const auto& f) { return f.second->qp == &qp; });
}

/// The rules that may want the frame: of its flow, of its local end, of its port, and the others.
std::array<const FlowTable::Chain*, FlowTable::kChains> FlowTable::chains_for(
    const Headers& h) const {
  std::array<const Chain*, kChains> chains{&others_};
  if (h.l4_bytes == 0) return chains;
  const auto address = [&](const std::array<uint8_t, 16>& a) {
    return h.ip == Ip::k4 ? IpAddr::v4(loaded<be32>(a)) : IpAddr::v6(std::bit_cast<in6_addr>(a));
  };
  const IpAddr local = address(h.dst), remote = address(h.src);
  const uint16_t port = __builtin_bswap16(h.dst_port), from = __builtin_bswap16(h.src_port);
  const auto proto = static_cast<IpProto>(h.proto);
  const bool v6 = h.ip == Ip::k6;
  const DemuxKey keys[] = {DemuxKey::exact(proto, local, port, remote, from),
                           DemuxKey::bound(proto, local, port, v6),
                           DemuxKey::bound(proto, IpAddr(), port, v6)};
  for (size_t i = 0; i < std::size(keys); ++i)
    if (const Keyed* k = keyed_.find(keys[i])) chains[i + 1] = &k->flows;
  return chains;
}

/// The first normal rule of the chain that wants the frame; nullptr: none does.
const Flow* FlowTable::first_match(const Chain& chain, const Headers& h) {
  for (const Flow* f : chain) {
    if (f->kind != IBV_FLOW_ATTR_NORMAL) continue;
    ++compared_;
    if (all_match(*f, h)) return f;
  }
  return nullptr;
}

Receivers FlowTable::receivers(const Headers& h) {
  Receivers to;
  for (const Flow* f : others_)
    if (f->kind == IBV_FLOW_ATTR_SNIFFER) to.add(f->qp, f->tag);
  const auto chains = chains_for(h);
  const Flow* first = nullptr;
  for (const Chain* chain : chains) {
    if (chain == nullptr) continue;
    const Flow* f = first_match(*chain, h);
    if (f != nullptr && (first == nullptr || goes_before(f, first))) first = f;
  }
  if (first == nullptr) {
    for (const Flow* f : others_) {
      const bool takes = f->kind == IBV_FLOW_ATTR_ALL_DEFAULT ||
                         (f->kind == IBV_FLOW_ATTR_MC_DEFAULT && h.is_multicast());
      if (takes) to.add(f->qp, f->tag);
    }
    return to;
  }
  if (!first->drops) to.add(first->qp, first->tag);
  if (!h.is_multicast()) return to;
  for (const Chain* chain : chains) {
    if (chain == nullptr) continue;
    for (const Flow* f : *chain)
      if (f->kind == IBV_FLOW_ATTR_NORMAL && f->priority == first->priority && !f->drops &&
          all_match(*f, h))
        to.add(f->qp, f->tag);
  }
  return to;
}

}  // namespace vireo::softnic
