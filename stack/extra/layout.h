// Vireo's values in the form that the extra API's structures hold.
// Owner: none (functions). Thread: any.
#pragma once

#include <netinet/in.h>

#include <ctime>

#include "core/address.h"

namespace vireo::extra {

/// IPv6 has no place in the structure: its address is then any.
inline sockaddr_in address_of(const Endpoint& e) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = be16(e.port).raw();
  if (e.addr.is_v4()) a.sin_addr.s_addr = e.addr.as_v4().raw();
  return a;
}

inline timespec time_of(int64_t ns) { return {ns / 1'000'000'000, ns % 1'000'000'000}; }

}  // namespace vireo::extra
