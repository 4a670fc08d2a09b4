#include "tests/apparatus/softnic/lacks.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace vireo::softnic {

bool lacks(std::string_view what) {
  const char* words = std::getenv("SOFTNIC_LACKS");
  for (std::string_view rest = words != nullptr ? words : ""; !rest.empty();) {
    const auto one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    if (one == what) return true;
  }
  return false;
}

int refusal_of_rule(const ibv_flow_attr& attr) {
  if (lacks("rules")) return EOPNOTSUPP;
  const auto* at = reinterpret_cast<const std::byte*>(&attr + 1);
  for (unsigned i = 0; i < attr.num_of_specs; ++i) {
    ibv_flow_spec spec{};  // they lie at any address
    std::memcpy(&spec.hdr, at, sizeof spec.hdr);
    if (spec.hdr.type == IBV_FLOW_SPEC_ETH) std::memcpy(&spec.eth, at, sizeof spec.eth);
    if (spec.hdr.type == IBV_FLOW_SPEC_IPV6 && lacks("ipv6")) return EINVAL;
    if (spec.hdr.type == IBV_FLOW_SPEC_ACTION_TAG && lacks("tags")) return EOPNOTSUPP;
    if (spec.hdr.type == IBV_FLOW_SPEC_ETH && spec.eth.mask.vlan_tag != 0 && lacks("vlans"))
      return EINVAL;
    if (spec.hdr.size == 0) break;
    at += spec.hdr.size;
  }
  return 0;
}

}  // namespace vireo::softnic
