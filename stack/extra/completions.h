// SocketXtreme: what happens on a ring's sockets as completions, with packets that are lent to the
// program. socketxtreme_* of the extra API, for VMA_SOCKETXTREME=1.
// Owner: none (functions). Thread: any; several that poll one ring find nothing while one does.
// Locks: takes those of sockets and engines itself.
#pragma once

#include <span>

#include "core/result.h"
#include "stack/extra/include/vireo_extra.h"
#include "stack/sock/stack.h"

namespace vireo::extra {

/// Polls the ring and accepts connections. @return how many completions. Errors: EBADFD no ring;
/// EINVAL no room.
Result<int> poll_completions(int ring_fd, std::span<vma_completion_t> out);
/// Gives packets back. Errors: EINVAL one has no buffer, or it is given back already.
Result<int> free_completed(Stack& stack, std::span<const vma_packet_desc_t> packets);
/// One more hold on a buffer, or one less, which may return it. @return holds left. Errors: as
/// above.
Result<int> hold_buffer(Stack& stack, vma_buff_t* buffer);
Result<int> free_buffer(Stack& stack, vma_buff_t* buffer);

/// In the child of a fork: the sockets are the parent's.
void forget_completions() noexcept;

}  // namespace vireo::extra
