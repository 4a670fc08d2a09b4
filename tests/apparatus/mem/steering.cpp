#include "tests/apparatus/mem/steering.h"

#include <cstring>
#include <utility>

namespace vireo {
namespace {

using Bytes = std::span<const std::byte>;

unsigned u8(Bytes b, size_t at) { return std::to_integer<unsigned>(b[at]); }
uint16_t u16(Bytes b, size_t at) { return static_cast<uint16_t>(u8(b, at) << 8 | u8(b, at + 1)); }

IpAddr v4_at(Bytes b, size_t at) {
  return IpAddr::v4(be32(uint32_t{u16(b, at)} << 16 | u16(b, at + 2)));
}
IpAddr v6_at(Bytes b, size_t at) {
  uint8_t a[16];
  std::memcpy(a, b.data() + at, sizeof a);
  return IpAddr::v6(a);
}

struct Packet {
  bool v6 = false;
  uint8_t proto = 0;
  IpAddr source, destination;
  Bytes payload;
};

/// IPv4 (RFC 791) or IPv6 (RFC 8200) without extension headers; nullopt for fragments and anything
/// else.
std::optional<Packet> parse_ip(Bytes ip, bool v6) {
  Packet p;
  p.v6 = v6;
  if (v6) {
    if (ip.size() < 40 || u8(ip, 0) >> 4 != 6) return std::nullopt;
    p.proto = static_cast<uint8_t>(u8(ip, 6));
    p.source = v6_at(ip, 8);
    p.destination = v6_at(ip, 24);
    p.payload = ip.subspan(40);
    return p;
  }
  if (ip.size() < 20 || u8(ip, 0) >> 4 != 4) return std::nullopt;
  const size_t header = (u8(ip, 0) & 15) * size_t{4};
  const bool fragment = (u16(ip, 6) & 0x3fff) != 0;
  if (header < 20 || header > ip.size() || fragment) return std::nullopt;
  p.proto = static_cast<uint8_t>(u8(ip, 9));
  p.source = v4_at(ip, 12);
  p.destination = v4_at(ip, 16);
  p.payload = ip.subspan(header);
  return p;
}

std::optional<FlowKey> ports_of(const Packet& p) {
  const auto proto = static_cast<IpProto>(p.proto);
  if ((proto != IpProto::kTcp && proto != IpProto::kUdp) || p.payload.size() < 4)
    return std::nullopt;
  FlowKey key;
  key.proto = proto;
  key.v6 = p.v6;
  key.remote = {p.source, u16(p.payload, 0), 0};
  key.local = {p.destination, u16(p.payload, 2), 0};
  return key;
}

/// Destination unreachable, time exceeded, parameter problem (RFC 792); for IPv6 every type below
/// 128 (RFC 4443).
bool is_icmp_error(const Packet& p) {
  if (p.payload.size() < 8) return false;
  const unsigned type = u8(p.payload, 0);
  if (p.v6) return p.proto == static_cast<uint8_t>(IpProto::kIcmpV6) && type < 128;
  return p.proto == static_cast<uint8_t>(IpProto::kIcmp) && (type == 3 || type == 11 || type == 12);
}

}  // namespace

std::optional<FlowKey> flow_of(Bytes frame) {
  size_t at = 12;
  if (frame.size() < at + 2) return std::nullopt;
  while (u16(frame, at) == 0x8100 || u16(frame, at) == 0x88a8) {  // IEEE 802.1Q, 802.1ad
    at += 4;
    if (frame.size() < at + 2) return std::nullopt;
  }
  const uint16_t type = u16(frame, at);
  if (type != 0x0800 && type != 0x86dd) return std::nullopt;
  const auto outer = parse_ip(frame.subspan(at + 2), type == 0x86dd);
  if (!outer) return std::nullopt;
  if (!is_icmp_error(*outer)) return ports_of(*outer);
  const auto quoted = parse_ip(outer->payload.subspan(8), outer->v6);
  if (!quoted) return std::nullopt;
  auto key = ports_of(*quoted);
  if (key) std::swap(key->local, key->remote);  // we sent what is quoted
  return key;
}

void SteeringTable::remove_all_of(const Queue& queue) {
  rules_.for_each([&](uint64_t id, const SteeringRule& r) {
    if (r.queue == &queue) rules_.remove(id);
  });
}

const SteeringRule* SteeringTable::match(Bytes frame) const {
  const auto flow = flow_of(frame);
  if (!flow) return nullptr;
  const Endpoint &local = flow->local, &remote = flow->remote;
  for (const DemuxKey& key :
       {DemuxKey::exact(flow->proto, local.addr, local.port, remote.addr, remote.port),
        DemuxKey::bound(flow->proto, local.addr, local.port, flow->v6),
        DemuxKey::bound(flow->proto, IpAddr(), local.port, flow->v6)})
    if (const SteeringRule* r = rules_.find(key)) return r;
  return nullptr;
}

}  // namespace vireo
