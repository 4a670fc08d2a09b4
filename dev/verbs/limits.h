// Queries the limits of a device and interprets them. Owner: none (functions). Thread: any, after
// load_libibverbs(). Source: ibv_query_device_ex(3).
#pragma once

#include <infiniband/verbs.h>

namespace vireo::verbs {

/// Fields that the device does not report are zero. @return false: the query failed.
bool query_limits(ibv_context* context, ibv_device_attr_ex& limits);

/// The device computes and verifies the checksums of raw IP packets.
bool sums_checksums(const ibv_device_attr_ex& limits);

/// Its raw-packet QPs support IBV_WR_TSO.
bool segments(const ibv_device_attr_ex& limits);

}  // namespace vireo::verbs
