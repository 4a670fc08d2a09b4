// Finishes a call on a connection that was handed over to the kernel (hand_over.cpp) while the call
// waited.
// Owner: none (functions). Thread: any; the File is pinned, the engine's lock not held.
#pragma once

#include <sys/types.h>

#include "core/result.h"
#include "stack/sock/file.h"
#include "stack/sock/iov.h"

namespace vireo::tcp_socket {

inline bool is_kernels(const File& f) noexcept {
  return f.mode.load(std::memory_order_acquire) == Mode::kKernel;
}

/// `done`: bytes transferred already. `to`, `from`: the rest of the call's vector.
Result<ssize_t> recv_from_kernel(Handle h, const IovCursor& to, size_t done, int flags);
Result<ssize_t> send_to_kernel(Handle h, const IovCursor& from, size_t done, int flags);

}  // namespace vireo::tcp_socket
