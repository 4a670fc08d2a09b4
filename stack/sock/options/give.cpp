// Sets a socket's options on the kernel socket that replaces it.
#include <fcntl.h>

#include "stack/sock/async_io.h"
#include "stack/sock/options/call.h"
#include "stack/sock/options/options.h"

namespace vireo {

void give_options(const File& f, int fd) {
  SocketOptions o = *f.tcp.options;
  SocketOptions of_new;
  const bool v6 = f.domain.load(std::memory_order_relaxed) == AF_INET6;
  for (const OptionLevel* level : option_levels()) {
    if (level->level == (v6 ? IPPROTO_IP : IPPROTO_IPV6)) continue;
    for (const SocketOption& row : level->rows) {
      if (row.how.give != nullptr) {
        row.how.give(f, fd);
      } else if (row.how.kept != nullptr) {
        const int value = row.how.kept(o);
        if (value != row.how.kept(of_new)) give_to(fd, row.level, row.name, value);
      }
    }
  }
  if (o.owner.pid != 0) {
    const f_owner_ex whom = sock::owner_in(o.owner);
    (void)libc().fcntl(fd, F_SETOWN_EX, &whom);
  }
}

}  // namespace vireo
