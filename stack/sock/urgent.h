// Urgent data of a TCP socket, and whom SIGURG is for.
// Owner: none (functions). Thread: holder of the engine's lock, but for owner_call().
#pragma once

#include <sys/uio.h>

#include <optional>
#include <span>

#include "core/result.h"
#include "stack/sock/file.h"

namespace vireo {

namespace tcp_socket {

/// recv(MSG_OOB).
Result<ssize_t> recv_urgent(File& f, std::span<const iovec> iov, int flags) noexcept;
/// What the urgent mark allows a read that has `done` bytes.
struct MarkStop {
  uint64_t most = UINT64_MAX;  ///< bytes from here
  uint32_t skip = 0;           ///< bytes to leave out first: the one that is out of band
  bool ends = false;           ///< the read ends here
};
/// Requires tcp::urgent() other than kNone.
MarkStop stop_at_mark(File& f, size_t done) noexcept;
void send_sigurg(const File& f) noexcept;
/// fcntl(2) F_SETOWN and its kin of a TCP socket; nullopt: another command.
std::optional<Result<int>> owner_call(Handle h, int command, uintptr_t argument) noexcept;

}  // namespace tcp_socket

}  // namespace vireo
