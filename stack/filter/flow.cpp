#include "stack/filter/flow.h"

#include <netinet/tcp.h>

#include "core/byteorder.h"

namespace vireo::filter {
namespace {

Bits address_bits(const IpAddr& a, bool v6) {
  const size_t size = v6 ? 16 : 4;
  if (a.is_unspecified()) return Bits::unknown(size);
  return Bits::known(std::span(a.bytes()).last(size));
}

Bits port_bits(uint16_t port) { return port == 0 ? Bits::unknown(2) : Bits::of(be16(port).raw()); }

void add(std::vector<Packet>& to, const Flow& flow, bool inbound, CtState state, bool answers_syn) {
  const auto kind = [&](int flags) {
    to.push_back({flow, inbound, state, static_cast<uint8_t>(flags)});
  };
  if (flow.proto != IpProto::kTcp) return kind(0);
  if (state == CtState::kNew) return kind(TH_SYN);
  if (answers_syn) kind(TH_SYN | TH_ACK);
  for (const int flags : {TH_ACK, TH_FIN | TH_ACK, TH_RST | TH_ACK, TH_RST}) kind(flags);
}

}  // namespace

Bits Packet::network_header() const {
  if (flow.v6) {
    Bits h = Bits::unknown(40);
    h.put(0, 0x60, 0xf0);
    h.put(6, static_cast<uint8_t>(flow.proto));
    h.put(8, address_bits(source().addr, true));
    h.put(24, address_bits(destination().addr, true));
    return h;
  }
  Bits h = Bits::unknown(20);
  h.put(0, 0x45);
  h.put(6, 0, 0x3f);  // DF is unknown
  h.put(7, 0);
  h.put(9, static_cast<uint8_t>(flow.proto));
  h.put(12, address_bits(source().addr, false));
  h.put(16, address_bits(destination().addr, false));
  return h;
}

Bits Packet::transport_header() const {
  Bits h = Bits::unknown(20);
  h.put(0, port_bits(source().port));
  h.put(2, port_bits(destination().port));
  if (flow.proto == IpProto::kTcp) h.put(13, tcp_flags, TH_FIN | TH_SYN | TH_RST | TH_ACK);
  return h;
}

std::vector<Packet> packets_of(const Flow& flow) {
  std::vector<Packet> all;
  if (flow.begins_there) {
    add(all, flow, true, CtState::kNew, false);
    add(all, flow, true, CtState::kEstablished, false);
    add(all, flow, false, CtState::kEstablished, true);
  }
  if (flow.begins_here) {
    add(all, flow, false, CtState::kNew, false);
    add(all, flow, false, CtState::kEstablished, false);
    add(all, flow, true, CtState::kEstablished, true);
  }
  if (flow.is_established)
    for (const bool inbound : {true, false}) add(all, flow, inbound, CtState::kEstablished, false);
  return all;
}

}  // namespace vireo::filter
