#include "dev/verbs/prove.h"

#include <cerrno>

#include "dev/verbs/pair.h"
#include "dev/verbs/steer.h"

namespace vireo::verbs {

Result<void> prove(const std::shared_ptr<Context>& context,
                   const std::optional<std::array<uint8_t, 6>>& mac) {
  const auto pair = Pair::create(context, {.sends = 16,
                                           .send_segments = 2,
                                           .inline_bytes = 0,
                                           .receives = 16,
                                           .receive_segments = 1,
                                           .segments = false});
  if (!pair) return std::unexpected(pair.error());
  constexpr uint16_t kDiscard = 9;  // RFC 863
  const FlowKey key{IpProto::kTcp, false, VlanId(),
                    Endpoint{*IpAddr::parse("192.0.2.1"), kDiscard, 0},
                    Endpoint{*IpAddr::parse("192.0.2.2"), kDiscard, 0}};
  FlowRequest request = flow_request(key, context->port(), mac, FlowTag());
  ibv_flow* const flow = ibv_create_flow(pair->get(), &request.attr);
  if (flow == nullptr) return fail_errno("ibv_create_flow");
  ibv_destroy_flow(flow);
  return {};
}

}  // namespace vireo::verbs
