// io_uring(7): the kernel takes what a ring asks for by number, past us, and beneath a carried
// socket lies one that is not connected. So a program that makes a ring has its sockets on the
// kernel from then on, those that there are as well (VIREO_IO_URING=0: its rings are for files).
// Owner: process. Thread: any.
#pragma once

#include "stack/sock/stack.h"

namespace vireo::sock {

/// Again is harmless.
void ring_was_made(Stack& stack) noexcept;
bool has_ring() noexcept;

}  // namespace vireo::sock
