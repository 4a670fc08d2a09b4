// How a File begins and ends. Owner: none (functions). Thread: any; locks are named at each.
#pragma once

#include "core/fd.h"
#include "core/result.h"
#include "stack/sock/file.h"

namespace vireo {

/// A File for descriptor `fd` of a kernel socket, installed. Errors: ENOMEM, ENFILE, EMFILE.
Result<File*> open_file(Stack& stack, FileKind kind, int domain, int fd);
/// One reference less; the last one closes. No lock held. `port_holder`: see Engine::tcp_close.
void release_file(File& f, UniqueFd port_holder);
/// What it has beyond itself.
void free_sockets(File& f);

}  // namespace vireo
