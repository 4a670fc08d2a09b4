// A kernel socket that continues a connection of ours, made with TCP_REPAIR (Linux net/ipv4/tcp.c;
// CAP_NET_ADMIN). The peer notices nothing, or that a segment was lost.
// Owner: the caller. Thread: holder of the File's control lock and the engine's lock.
#pragma once

#include "core/fd.h"
#include "core/result.h"
#include "stack/sock/file.h"
#include "stack/tcp/hand_over.h"

namespace vireo {

/// A socket with all that the connection is, and the options of `f`. It does not speak by itself
/// yet, and is closed without a word. Errors: EPERM, EMFILE and those of the kernel's calls.
Result<UniqueFd> begin_repair(const File& f, Engine& e, const FlowKey& key, const tcp::HandOver& c)
    VIREO_REQUIRES(e.lock());
/// The peer's frames come to it from now on: it speaks.
void end_repair(const File& f, int fd, const tcp::HandOver& c);

}  // namespace vireo
