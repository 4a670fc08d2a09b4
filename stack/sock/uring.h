// io_uring(7): the kernel serves a ring's requests by descriptor number, without Vireo, and the
// kernel socket beneath a carried one is not connected. So once a program makes a ring, its sockets
// are the kernel's, existing ones too (VIREO_IO_URING=0: the program uses rings for files only).
// Owner: process. Thread: any.
#pragma once

#include "stack/sock/stack.h"

namespace vireo::sock {

/// May be called again.
void ring_was_made(Stack& stack) noexcept;
bool has_ring() noexcept;

}  // namespace vireo::sock
