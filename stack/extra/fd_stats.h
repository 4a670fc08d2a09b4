// Counters of sockets as log lines: dump_fd_stats of the extra API.
// Owner: none (functions). Thread: any.
#pragma once

#include "stack/sock/stack.h"

namespace vireo::extra {

/// Logs a line for each open socket with the descriptor `fd`, or for all if it is 0, at the level
/// of that number (core/log.h).
void log_fd_stats(Stack& stack, int fd, int level);

}  // namespace vireo::extra
