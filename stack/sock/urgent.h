// Urgent data of a TCP socket, and the recipient of SIGURG.
// Owner: none (functions). Thread: holder of the engine's lock, except owner_call().
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
/// How far a read that has `done` bytes may go before the urgent mark.
struct MarkStop {
  uint64_t most = UINT64_MAX;  ///< bytes that may be read
  uint32_t skip = 0;           ///< bytes to skip first: the out-of-band byte
  bool ends = false;           ///< the read ends here
};
/// Requires tcp::urgent() other than kNone.
MarkStop stop_at_mark(File& f, size_t done) noexcept;
void send_sigurg(const File& f) noexcept;
/// fcntl(2) F_SETOWN and related commands on a TCP socket; nullopt: another command.
std::optional<Result<int>> owner_call(Handle h, int command, uintptr_t argument) noexcept;

}  // namespace tcp_socket

}  // namespace vireo
