// What a device says it can do, and how it is read. Owner: none (functions). Thread: any, after
// load_libibverbs(). Source: ibv_query_device_ex(3).
#pragma once

#include <infiniband/verbs.h>

namespace vireo::verbs {

/// Zero where the device does not say. @return false: it says nothing at all.
bool query_limits(ibv_context* context, ibv_device_attr_ex& limits);

/// It makes and verifies the checksums of raw IP packets.
bool sums_checksums(const ibv_device_attr_ex& limits);

/// Its raw-packet queue pairs take IBV_WR_TSO.
bool segments(const ibv_device_attr_ex& limits);

}  // namespace vireo::verbs
