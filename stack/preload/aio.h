// Asynchronous I/O, by the kernel or by libc's threads, uses the kernel's descriptor and bypasses
// Vireo. So a socket used for it is moved to the kernel. Owner: none (a function). Thread: any.
#pragma once

struct iocb;

namespace vireo::preload {

/// For io_submit(2): moves the sockets in `list` to the kernel. @return how many requests, from the
/// first, may be submitted: the next one names a socket that cannot be moved.
long give_to_aio(long n, iocb* const* list) noexcept;

}  // namespace vireo::preload
