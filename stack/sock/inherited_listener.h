// A listener that this process has from another program: by exec (a server that replaces itself,
// systemd.socket(5)), or by SCM_RIGHTS (a server that hands its listeners to its successor). Vireo
// has not seen how it was made. It gets a File when the program first uses it, and then serves as
// one that a parent left to its child: vireo-stat shows it, and its connections may be promoted
// (promotion.h), or Vireo's listener may join it (worker.h).
//
// Owner: none (functions). Thread: any. No lock held.
#pragma once

#include "stack/sock/file.h"

namespace vireo::sock {

/// Whether the kernel's socket `fd` is a TCP listener. Leaves errno alone.
bool is_listener(int fd) noexcept;
/// The File of listener `fd`; it is made, if it has none. Empty: no memory, or the process is not
/// the stack's.
Handle adopt_listener(Stack& stack, int fd) noexcept;

}  // namespace vireo::sock
