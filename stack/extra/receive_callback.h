// register_recv_callback of the extra API.
// Owner: none (functions). Thread: any. Locks: takes those of the socket itself.
#pragma once

#include "core/result.h"
#include "stack/extra/include/vireo_extra.h"
#include "stack/sock/fd_table.h"

namespace vireo::extra {

/// Null: none from now on. Errors: as inspection::set().
Result<void> set_receive_callback(Handle h, vma_recv_callback_t callback, void* context);

}  // namespace vireo::extra
