// recvfrom_zcopy and free_packets of the extra API.
// Owner: none (functions). Thread: any. Locks: takes the engine's itself.
#pragma once

#include <sys/socket.h>

#include "core/result.h"
#include "stack/extra/include/vireo_extra.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/lent_buffers.h"

namespace vireo::extra {

/// What a look at a socket's queue found.
struct Look {
  enum : uint8_t {
    kNothing,   ///< of Vireo's, after a poll
    kLent,      ///< a packet
    kMustCopy,  ///< data that may not be lent, or not now
    kUrgent,    ///< the same, as long as the program does not read by recv(2)
  } what = kNothing;
  Lent packet = {};
  Endpoint source = {};
  int64_t hw_time = 0;     ///< ns, 0: none
  uint64_t user_data = 0;  ///< kLent: SO_VMA_USER_DATA
};
/// Lends the first datagram, or so many buffers of a stream. `is_loose`: lending::make_loose().
/// Errors: EBADF, ENOMEM.
Result<void> look(Handle h, size_t pieces, bool is_loose, Look& found);

/// As recvfrom(2), with `flags` its flags and MSG_VMA_ZCOPY_FORCE. If MSG_VMA_ZCOPY is set in them
/// on return, `buffer` has a vma_packets_t: one packet, which is the program's until
/// free_packets(). Otherwise it has a copy: the data came by the kernel's socket, the socket has
/// lent as much as it may, or a flag asks for more than data. Errors: as recvfrom(2); ENOBUFS no
/// room for a vma_packets_t; with MSG_VMA_ZCOPY_FORCE, EIO in place of a copy.
Result<int> recv_zero_copy(Handle h, void* buffer, size_t len, int& flags, sockaddr* from,
                           socklen_t* from_len);
/// Errors: ENOENT a packet is not lent by the socket; those before it are free.
Result<int> free_packets(Handle h, const vma_packet_t* packets, size_t count);

}  // namespace vireo::extra
