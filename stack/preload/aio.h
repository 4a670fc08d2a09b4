// Asynchronous I/O: the kernel's, or that of libc's threads, knows the number and not the socket of
// ours that has it. So a socket that the program uses so becomes the kernel's. Owner: none (a
// function). Thread: any.
#pragma once

struct iocb;

namespace vireo::preload {

/// Of io_submit(2): the sockets of ours among these. @return how many from the first may be
/// submitted: the rest names one that has to stay ours.
long give_to_aio(long n, iocb* const* list) noexcept;

}  // namespace vireo::preload
