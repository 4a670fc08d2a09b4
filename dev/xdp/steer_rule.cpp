#include "dev/xdp/steer_rule.h"

#include <netinet/in.h>

#include <cstring>

namespace vireo::xdp {
namespace {

SteerRule no_rule() {
  SteerRule r;
  std::memset(&r, 0, sizeof r);
  return r;
}

uint32_t port_slot_of(uint8_t proto, uint16_t port) {
  return STEER_PORT_SLOT(proto == IPPROTO_UDP, uint32_t{port});
}

/// Without its key.
template <class Key>
SteerRule rule_at(steer_kind kind, const Key& key) {
  SteerRule r = no_rule();
  r.kind = kind;
  r.port_slot = port_slot_of(key.proto, key.local_port);
  return r;
}

template <class Bytes>
void copy_address(Bytes& to, const IpAddr& from) {
  std::memcpy(to, from.bytes().data(), sizeof to);
}

}  // namespace

uint16_t SteerRule::link() const {
  switch (kind) {
    case STEER_LOCAL4:
    case STEER_WILD4:
      return local4.link;
    case STEER_LOCAL6:
    case STEER_WILD6:
      return local6.link;
    default:
      return STEER_ANY_LINK;
  }
}

Result<SteerRule> rule_of(const FlowKey& key) {
  if (key.proto != IpProto::kTcp && key.proto != IpProto::kUdp)
    return fail(ENOTSUP, "steering of this protocol");
  const bool wild = key.local.addr.is_unspecified();
  const bool exact = key.is_exact();
  if (key.local.port == 0 || exact == key.remote.addr.is_unspecified() || (exact && wild) ||
      (!wild && key.local.addr.is_v4() == key.v6) || (exact && key.remote.addr.is_v4() == key.v6))
    return fail(EINVAL, "steering key");

  const uint16_t local_port = be16(key.local.port).raw();
  const uint16_t remote_port = be16(key.remote.port).raw();
  const auto proto = static_cast<uint8_t>(key.proto);
  SteerRule r = no_rule();
  r.port_slot = port_slot_of(proto, local_port);
  if (exact && key.v6) {
    r.kind = STEER_EXACT6;
    copy_address(r.exact6.local, key.local.addr);
    copy_address(r.exact6.remote, key.remote.addr);
    r.exact6.local_port = local_port;
    r.exact6.remote_port = remote_port;
    r.exact6.proto = proto;
  } else if (exact) {
    r.kind = STEER_EXACT4;
    r.exact4.local = key.local.addr.as_v4().raw();
    r.exact4.remote = key.remote.addr.as_v4().raw();
    r.exact4.local_port = local_port;
    r.exact4.remote_port = remote_port;
    r.exact4.proto = proto;
  } else if (key.v6) {
    r.kind = wild ? STEER_WILD6 : STEER_LOCAL6;
    if (!wild) copy_address(r.local6.local, key.local.addr);
    r.local6.local_port = local_port;
    r.local6.link = key.vlan.value();
    r.local6.proto = proto;
  } else {
    r.kind = wild ? STEER_WILD4 : STEER_LOCAL4;
    if (!wild) r.local4.local = key.local.addr.as_v4().raw();
    r.local4.local_port = local_port;
    r.local4.link = key.vlan.value();
    r.local4.proto = proto;
  }
  return r;
}

SteerRule rule_of(const steer_exact4& key) {
  SteerRule r = rule_at(STEER_EXACT4, key);
  r.exact4 = key;
  return r;
}

SteerRule rule_of(const steer_exact6& key) {
  SteerRule r = rule_at(STEER_EXACT6, key);
  r.exact6 = key;
  return r;
}

SteerRule rule_of(const steer_local4& key) {
  SteerRule r = rule_at(key.local == 0 ? STEER_WILD4 : STEER_LOCAL4, key);
  r.local4 = key;
  return r;
}

SteerRule rule_of(const steer_local6& key) {
  static constexpr uint8_t kAny[16] = {};
  const bool wild = std::memcmp(key.local, kAny, sizeof kAny) == 0;
  SteerRule r = rule_at(wild ? STEER_WILD6 : STEER_LOCAL6, key);
  r.local6 = key;
  return r;
}

}  // namespace vireo::xdp
