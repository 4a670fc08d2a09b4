// Opening and closing a File. Owner: none (functions). Thread: any; locks are named at each.
#pragma once

#include "core/fd.h"
#include "core/result.h"
#include "stack/sock/file.h"

namespace vireo {

/// Makes and installs a File for `fd`, a kernel socket. Errors: ENOMEM, ENFILE, EMFILE.
Result<File*> open_file(Stack& stack, FileKind kind, int domain, int fd);
/// Drops a reference; the last closes the File. No lock held. `port_holder`: see Engine::tcp_close.
void release_file(File& f, UniqueFd port_holder);
/// Frees what the File has allocated.
void free_sockets(File& f);

}  // namespace vireo
