// SO_VMA_* of setsockopt(2) and getsockopt(2), and SO_MAX_PACING_RATE by a vma_rate_limit_t.
// Owner: none (functions). Thread: any. Locks: takes those of the socket itself.
#pragma once

#include <sys/socket.h>

#include "core/result.h"
#include "stack/extra/include/vireo_extra.h"
#include "stack/sock/fd_table.h"

namespace vireo::extra {

/// A call with this value is for set_option() or get_option(). No other option of Linux has such a
/// name, and SO_MAX_PACING_RATE has 4 or 8 bytes there.
inline bool is_option(int level, int name, socklen_t len) {
  return level == SOL_SOCKET && ((name > SO_VMA_GET_API && name <= SO_VMA_SHUTDOWN_RX) ||
                                 (name == SO_MAX_PACING_RATE && len == sizeof(vma_rate_limit_t)));
}
Result<void> set_option(Handle h, int name, const void* value, socklen_t len);
Result<void> get_option(Handle h, int name, void* value, socklen_t* len);

}  // namespace vireo::extra
