// The key of a flow, for tables to compare and hash: equal keys are equal bytes. Owner: none
// (values). Thread: any.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/address.h"
#include "core/flow_hash.h"

namespace vireo {

/// Addresses and ports: 40 bytes without padding. Wildcards are zero.
struct DemuxKey {
  static constexpr uint32_t kMapped = 0xffff0000;  ///< the word before a mapped IPv4 address
  uint8_t local[16] = {};
  uint8_t remote[16] = {};
  uint16_t local_port = 0;
  uint16_t remote_port = 0;
  uint8_t proto = 0;
  uint8_t v6 = 0;     ///< family of a wildcard; else 0
  uint16_t vlan = 0;  ///< for device rules with a VLAN, else 0

  static DemuxKey exact(IpProto proto, const IpAddr& local, uint16_t local_port,
                        const IpAddr& remote, uint16_t remote_port) {
    DemuxKey k;
    std::memcpy(k.local, local.bytes().data(), 16);
    std::memcpy(k.remote, remote.bytes().data(), 16);
    k.local_port = local_port;
    k.remote_port = remote_port;
    k.proto = static_cast<uint8_t>(proto);
    return k;
  }
  /// `local` unspecified: any address of the family.
  static DemuxKey bound(IpProto proto, const IpAddr& local, uint16_t port, bool v6) {
    DemuxKey k;
    if (local.is_unspecified())
      k.v6 = v6 ? 1 : 0;
    else
      std::memcpy(k.local, local.bytes().data(), 16);
    k.local_port = port;
    k.proto = static_cast<uint8_t>(proto);
    return k;
  }
  /// The key of a rule or a binding: exact or bound.
  static DemuxKey of(const FlowKey& k) {
    DemuxKey d = k.is_exact()
                     ? exact(k.proto, k.local.addr, k.local.port, k.remote.addr, k.remote.port)
                     : bound(k.proto, k.local.addr, k.local.port, k.v6);
    d.vlan = k.vlan.value();
    return d;
  }
  /// Packs an exact IPv4 key into 16 bytes. @return false: it is not one.
  bool pack_v4(uint32_t (&out)[4]) const {
    struct {
      uint64_t zero;
      uint32_t prefix;
      uint32_t address;
    } a, b;
    std::memcpy(&a, local, sizeof a);
    std::memcpy(&b, remote, sizeof b);
    if ((a.zero | b.zero) != 0 || a.prefix != kMapped || b.prefix != kMapped) return false;
    out[0] = a.address;
    out[1] = b.address;
    out[2] = uint32_t{remote_port} << 16 | local_port;
    out[3] = uint32_t{vlan} << 16 | uint32_t{v6} << 8 | proto;
    return true;
  }
  /// For a table whose keys remote hosts choose.
  uint64_t hash(const FlowHashKey& secret) const noexcept {
    uint32_t words[4];  // the length distinguishes them from a full key
    if (!pack_v4(words)) return flow_hash(secret, this, sizeof *this);
    return flow_hash(secret, words, sizeof words);
  }
  bool operator==(const DemuxKey& o) const {  // inline, which memcmp() of 40 bytes is not
    uint64_t a[5], b[5];
    std::memcpy(a, this, sizeof a);
    std::memcpy(b, &o, sizeof b);
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4])) == 0;
  }
};
static_assert(sizeof(DemuxKey) == 40);

}  // namespace vireo
