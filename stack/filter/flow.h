// The question to the rules: a binding or a connection, and the packets that belong to it.
// Owner: none (values). Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/types.h"
#include "stack/filter/bits.h"

namespace vireo::filter {

struct Interface {
  IfIndex index{};  ///< 0: unknown
  std::string name = {};
};

/// Unspecified addresses and ports of 0 mean any.
struct Flow {
  IpProto proto = IpProto::kTcp;
  bool v6 = false;
  Endpoint local = {};
  Endpoint remote = {};
  Interface interface = {};     ///< of its packets, both directions
  bool begins_there = false;    ///< the peer sends the first packet
  bool begins_here = false;     ///< this host does
  bool is_established = false;  ///< neither: packets of an existing connection
};

/// States of conntrack(8), as bits of nf_tables' `ct state`.
enum class CtState : uint32_t { kEstablished = 2, kNew = 8 };

/// A kind of packets of a flow.
struct Packet {
  static constexpr uint16_t kDrawnPort = 49'152;
  const Flow& flow;
  bool inbound = false;
  CtState state = CtState::kNew;
  uint8_t tcp_flags = 0;  ///< FIN, SYN, RST, ACK; the others are unknown

  Endpoint source() const { return inbound ? theirs() : ours(); }
  Endpoint destination() const { return inbound ? ours() : theirs(); }
  /// The headers, as far as known. The packet is no fragment and has no extension headers.
  Bits network_header() const;
  Bits transport_header() const;

 private:
  // A client that names no port gets an ephemeral one, and packets are judged with such a port;
  // only the source port of a peer's packets counts as unknown.
  Endpoint ours() const {
    Endpoint e = flow.local;
    if (e.port == 0 && flow.begins_here) e.port = kDrawnPort;
    return e;
  }
  Endpoint theirs() const {
    Endpoint e = flow.remote;
    if (e.port == 0 && flow.begins_there && !inbound) e.port = kDrawnPort;
    return e;
  }
};

/// All kinds of packets of a flow.
std::vector<Packet> packets_of(const Flow& flow);

}  // namespace vireo::filter
