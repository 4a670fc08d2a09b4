// Reads the nf_tables rules from the kernel (nfnetlink). Owner: none. Thread: as the socket's.
#pragma once

#include <linux/netlink.h>

#include "core/result.h"
#include "stack/filter/ruleset.h"
#include "stack/filter/sessions.h"

namespace vireo::filter {

/// Adds them to `to`. Errors: EPERM without CAP_NET_ADMIN; EBUSY: they changed during each attempt.
Result<void> read_nft(Session& s, Ruleset& to);

/// Adds the content of one dump message (NFT_MSG_NEWTABLE, NEWCHAIN, NEWRULE, NEWSET, NEWSETELEM;
/// in that order).
void take_nft(const nlmsghdr& m, Ruleset& to);
/// After the last message.
void end_nft(Ruleset& r);

}  // namespace vireo::filter
