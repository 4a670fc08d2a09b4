// What follows from a socket's options: the configuration of its flow, and the options to set on a
// kernel socket that replaces it.
// Owner: none (functions). Guard: the File's control lock, unless said otherwise.
#pragma once

#include "core/result.h"
#include "stack/engine/flow.h"
#include "stack/sock/file.h"
#include "stack/sock/options/values.h"
#include "stack/tcp/tcp.h"

namespace vireo {

/// Replaces the socket's options. Control lock held, the engine's not. Errors: ENOMEM.
Result<void> replace_options(File& f, const SocketOptions& o);
/// Keeps the local address of a flow about to be freed. Engine's lock held, or no other thread
/// here.
void leave_name(File& f);

/// The initial configuration of a connection: settings, kernel defaults, then the program's
/// options.
tcp::Config tcp_config(const Stack& stack, const SocketOptions& o);

/// A set of options that sockets share, with the configuration derived from it.
struct OptionsWithConfig : SocketOptions {
  constexpr OptionsWithConfig() = default;
  OptionsWithConfig(const SocketOptions& o, const Stack& stack)
      : SocketOptions(o), config(tcp_config(stack, o)) {}
  tcp::Config config;
};

/// Congestion control of a socket that has chosen none.
tcp::CcKind default_congestion(const Stack& stack);
/// SO_PRIORITY, as IP_TOS sets it (Linux rt_tos2priority).
int priority_of_tos(int tos);
/// The IP settings of a socket's flow.
IpSettings ip_settings(const SocketOptions& o, bool v6);

/// For a new socket: reads the kernel's initial values, applies VMA_TCP_NODELAY and others.
void init_options(File& f);
/// The options of a TCP socket on which none was set yet. Without memory: the defaults.
SharedOptions first_options(Stack& stack);

/// Sets on a new kernel socket `fd`, of the same family as `f`, the options that the program has
/// set on TCP socket `f`.
void give_options(const File& f, int fd);

/// The options of `f`, a new TCP File, become those of kernel socket `fd`, by comparison with a new
/// socket. f.forced says whether one of them keeps it on the kernel.
void take_options(File& f, int fd);

}  // namespace vireo
