// A kernel socket that continues a carried connection, made with TCP_REPAIR (Linux net/ipv4/tcp.c;
// CAP_NET_ADMIN). The peer sees no change, or at most a lost segment.
// Owner: the caller. Thread: holder of the File's control lock and the engine's lock.
#pragma once

#include "core/fd.h"
#include "core/result.h"
#include "stack/sock/file.h"
#include "stack/tcp/hand_over.h"

namespace vireo {

/// Makes a socket with the connection's whole state and the options of `f`. Until end_repair() it
/// sends nothing, also when closed. Errors: EPERM, EMFILE and those of the system calls.
Result<UniqueFd> begin_repair(const File& f, Engine& e, const FlowKey& key, const tcp::HandOver& c)
    VIREO_REQUIRES(e.lock());
/// The peer's frames now go to the kernel socket: it starts to send.
void end_repair(const File& f, int fd, const tcp::HandOver& c);

}  // namespace vireo
