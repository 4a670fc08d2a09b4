// Fills TCP_INFO for a connection. Owner: none (a function). Thread: holder of the lock of the
// Tcb's engine. Source: linux/tcp.h, net/ipv4/tcp.c tcp_get_info().
#pragma once

#include <linux/tcp.h>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

/// The kernel's number of a state (net/tcp_states.h).
uint8_t linux_state(State s);

/// All fields but tcpi_pmtu, which the owner of the route fills in.
tcp_info linux_info(const Tcb& t, Instant now);

}  // namespace vireo::tcp
