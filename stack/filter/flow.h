// The question to the rules: a binding or a connection, and the packets that it stands for.
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
  IfIndex index{};  ///< 0: not known which
  std::string name = {};
};

/// Addresses that are unspecified and ports that are 0 may be any.
struct Flow {
  IpProto proto = IpProto::kTcp;
  bool v6 = false;
  Endpoint local = {};
  Endpoint remote = {};
  Interface interface = {};     ///< by which its packets come and go
  bool begins_there = false;    ///< the peer sends the first packet
  bool begins_here = false;     ///< we do
  bool is_established = false;  ///< neither: packets of a connection that there is
};

/// States of conntrack(8), as bits of nf_tables' `ct state`.
enum class CtState : uint32_t { kEstablished = 2, kNew = 8 };

/// A kind of packets of a flow.
struct Packet {
  static constexpr uint16_t kDrawnPort = 49'152;
  const Flow& flow;
  bool inbound = false;
  CtState state = CtState::kNew;
  uint8_t tcp_flags = 0;  ///< FIN, SYN, RST, ACK; the others may be set or not

  Endpoint source() const { return inbound ? theirs() : ours(); }
  Endpoint destination() const { return inbound ? ours() : theirs(); }
  /// The headers as far as they are known. It is no fragment and has no extension headers.
  Bits network_header() const;
  Bits transport_header() const;

 private:
  // Who asks first and names no port draws one, and packets are judged as those of such a one; but
  // of a stranger's port nothing is known.
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

/// All kinds.
std::vector<Packet> packets_of(const Flow& flow);

}  // namespace vireo::filter
