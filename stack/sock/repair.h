// A connection between the kernel and us, in either direction, by TCP_REPAIR (Linux
// net/ipv4/tcp.c; CAP_NET_ADMIN). The peer sees no change, or at most a lost segment.
// Owner: the caller. Thread: holder of the engine's lock, and of the File's control lock if it is
// in the table.
#pragma once

#include <cstddef>
#include <vector>

#include "core/fd.h"
#include "core/result.h"
#include "stack/sock/file.h"
#include "stack/tcp/hand_over.h"
#include "stack/tcp/take_over.h"

namespace vireo {

/// Makes a socket with the connection's whole state and the options of `f`. Until end_repair() it
/// sends nothing, also when closed. Errors: EPERM, EMFILE and those of the system calls.
Result<UniqueFd> begin_repair(const File& f, Engine& e, const FlowKey& key, const tcp::HandOver& c)
    VIREO_REQUIRES(e.lock());
/// The peer's frames now go to the kernel socket: it starts to send.
void end_repair(const File& f, int fd, const tcp::HandOver& c);

/// Whether take_from_kernel() would succeed now, without disturbing the connection.
bool is_plain_now(int fd);
/// Reads a connection of the kernel's that receives nothing any more, for us to continue: from here
/// on the kernel sends nothing for it, also when closed. `unread`: the bytes that the result refers
/// to. Errors: EAGAIN something is under way that TCP_REPAIR does not tell, or much is unread;
/// those of the system calls. On an error the kernel goes on with it.
Result<tcp::TakeOver> take_from_kernel(int fd, std::vector<std::byte>& unread);
/// The kernel goes on with it after all.
void leave_with_kernel(int fd);

}  // namespace vireo
