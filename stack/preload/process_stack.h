// The program's Stack, made when the first socket or epoll asks for it, so that preloading costs
// other programs nothing. Owner: process, never destroyed. Thread: any.
#pragma once

#include "stack/sock/process.h"

namespace vireo::preload {

/// Null if it cannot be had, or in the child of a vfork: use the kernel.
Stack* get_stack() noexcept;

}  // namespace vireo::preload
