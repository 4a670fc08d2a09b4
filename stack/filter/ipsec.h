// Reads IPsec policies (NETLINK_XFRM; linux/xfrm.h, ip-xfrm(8)). Owner: none. Thread: as the
// socket's.
#pragma once

#include "stack/filter/ruleset.h"
#include "stack/filter/sessions.h"

namespace vireo::filter {

/// Errors: EPERM without CAP_NET_ADMIN.
Result<void> read_ipsec(Session& s, Ruleset& to);

}  // namespace vireo::filter
