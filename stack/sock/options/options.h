// What follows from the options of a socket: the configuration of its flow, and what a kernel's
// socket must be told that goes on in its place.
// Owner: none (functions). Guard: the File's control lock, unless said otherwise.
#pragma once

#include "core/result.h"
#include "stack/engine/flow.h"
#include "stack/sock/file.h"
#include "stack/sock/options/values.h"
#include "stack/tcp/tcp.h"

namespace vireo {

/// The socket has these from now on. Control lock held, the engine's not. Errors: ENOMEM.
Result<void> replace_options(File& f, const SocketOptions& o);
/// The flow goes and the File stays: its name does too. Engine's lock held, or nobody else is here.
void leave_name(File& f);

/// What a connection starts with: settings, kernel defaults, then the program's options.
tcp::Config tcp_config(const Stack& stack, const SocketOptions& o);

/// Options as sockets share them, with what follows from them.
struct OptionsWithConfig : SocketOptions {
  constexpr OptionsWithConfig() = default;
  OptionsWithConfig(const SocketOptions& o, const Stack& stack)
      : SocketOptions(o), config(tcp_config(stack, o)) {}
  tcp::Config config;
};

/// Congestion control of a socket that has chosen none.
tcp::CcKind default_congestion(const Stack& stack);
/// What the flow of a socket asks of IP.
IpSettings ip_settings(const SocketOptions& o, bool v6);

/// A new socket: reads the kernel's starting values, applies VMA_TCP_NODELAY and others.
void init_options(File& f);
/// Those of a TCP socket of which nothing was set yet. Without memory: the ordinary ones.
SharedOptions first_options(Stack& stack);

/// Sets on the kernel's new socket `fd`, which is of the family of `f`, a TCP socket, what the
/// program has set on that.
void give_options(const File& f, int fd);

}  // namespace vireo
