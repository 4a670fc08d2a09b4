// A server that echoes on any number of connections, by one epoll. Runs until g_stop.
#pragma once

#include "sockets.h"

namespace plain {

/// Listens on `o.ports` ports; `o.way` kSpin: epoll_wait without waiting.
void serve_echo(const Options& o);

}  // namespace plain
