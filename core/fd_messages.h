// Messages with descriptors over AF_UNIX sockets that keep message boundaries (SOCK_SEQPACKET).
// Owner: none. Thread: any. Nothing blocks and errno stays. Source: unix(7), cmsg(3).
#pragma once

#include <cstddef>
#include <span>

#include "core/fd.h"

namespace vireo {

inline constexpr size_t kMaxSentFds = 16;  ///< with one message

/// @return 0 or -errno.
long send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) noexcept;

struct Received {
  long bytes =
      0;  ///< or -errno; -EMFILE: there was no number for some descriptor, and all are shut
  size_t fds = 0;
};
/// Receives a message with at most fds.size() descriptors. They get the lowest free numbers: who
/// keeps one moves it (core/high_fd.h). Without room for any, the kernel shuts them.
/// @param flags MSG_PEEK or 0.
Received receive_message(int socket, std::span<std::byte> bytes, std::span<UniqueFd> fds,
                         int flags) noexcept;
/// The same for plain numbers, which the caller shuts.
Received receive_numbers(int socket, std::span<std::byte> bytes, std::span<int> fds,
                         int flags) noexcept;

}  // namespace vireo
