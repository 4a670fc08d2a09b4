#include "dev/verbs/limits.h"

#include "dev/verbs/late_libibverbs.h"

namespace vireo::verbs {

/// ibv_query_device_ex() without the inline wrapper of verbs.h, which links against the library.
bool query_limits(ibv_context* context, ibv_device_attr_ex& limits) {
  limits = {};
  const verbs_context* extended = verbs_get_ctx_op(context, query_device_ex);
  if (extended != nullptr &&
      extended->query_device_ex(context, nullptr, &limits, sizeof limits) == 0)
    return true;
  limits = {};
  return library().query_device(context, &limits.orig_attr) == 0;
}

bool sums_checksums(const ibv_device_attr_ex& a) {
  return (a.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0 ||
         (a.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM) != 0;
}

bool segments(const ibv_device_attr_ex& a) {
  return a.tso_caps.max_tso > 0 &&
         ibv_is_qpt_supported(a.tso_caps.supported_qpts, IBV_QPT_RAW_PACKET);
}

}  // namespace vireo::verbs
