// The table of the extra API (stack/extra/include/vireo_extra.h).
// Owner: process. Thread: any.
#pragma once

#include <sys/socket.h>

namespace vireo::preload {

/// getsockopt(SO_VMA_GET_API): writes a pointer to the table. @return false: there is no room for
/// it, and the kernel answers, which does not know the option.
bool give_extra_api(void* value, socklen_t* len) noexcept;

}  // namespace vireo::preload
