// A call of setsockopt(2) or getsockopt(2), as passed to the rows of the table. Used within
// stack/sock/options only.
// Owner: the call. Thread: its own.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/user_memory.h"
#include "stack/sock/file.h"
#include "stack/sock/libc.h"
#include "stack/sock/options/table.h"
#include "stack/sock/options/values.h"

namespace vireo {

struct SetCall {
  const Handle& h;
  const SocketOption* row;  ///< null: an option unknown to Vireo
  int level;
  int name;
  const void* value;
  socklen_t len;

  File& file() const { return *h.file; }
  /// The value as the kernel reads it: an int, or one byte if `len` is shorter.
  int as_int() const {
    int v = 0;
    const size_t n = len < sizeof v ? std::min<size_t>(len, 1) : sizeof v;
    if (n != 0 && is_readable(value, n)) std::memcpy(&v, value, n);
    return v;
  }
  /// Sets it on the kernel socket beneath, or on another one.
  Result<void> by_kernel() const { return by_kernel(h.fd); }
  Result<void> by_kernel(int fd) const {
    if (libc().setsockopt(fd, level, name, value, len) != 0) return fail_errno("setsockopt");
    return {};
  }
  /// Reads the present value of option `as` from the kernel socket. @return false: it failed.
  bool read_back(int as, int& v) const {
    int read = 0;
    socklen_t n = sizeof read;
    if (libc().getsockopt(h.fd, level, as, &read, &n) != 0) return false;
    v = read;
    return true;
  }
};

struct GetCall {
  const Handle& h;
  const SocketOption& row;
  void* value;
  socklen_t* len;

  File& file() const { return *h.file; }
  /// Copies a value as the kernel's getsockopt does: as much as fits.
  template <class T>
  Result<void> give(const T& v) const {
    if (!is_writable(len)) return fail(EFAULT, "getsockopt");
    if (static_cast<int>(*len) < 0) return fail(EINVAL, "getsockopt");
    const socklen_t n = std::min<socklen_t>(*len, sizeof v);
    if (n != 0 && !is_writable(value, n)) return fail(EFAULT, "getsockopt");
    std::memcpy(value, &v, n);
    *len = n;
    return {};
  }
};

/// A connection to which options are applied. Its engine's lock is held.
struct LiveConnection {
  File& f;
  TcpFlow& flow;
  const SocketOptions& o;
  const tcp::Config& config;  ///< derived from `o`
  Instant now;

  tcp::Tcb& tcb() const { return flow.tcb; }
};

/// OptionHandling::tell for values that the live flow has. nullopt: it is not carried.
template <std::optional<Result<void>> (*kTell)(const GetCall&, Engine&)>
std::optional<Result<void>> of_flow(const GetCall& c) {
  if (!c.file().is_carried()) return std::nullopt;
  Engine* const engine = c.file().engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "getsockopt");  // closed by another thread
  return kTell(c, *engine);
}

// ---- setsockopt.cpp
/// The kernel socket has the option set: the socket is the kernel's alone from now on.
void leave_to_kernel(const SetCall& c);
/// Applies the option to a live connection or listener.
void apply_to_tcp(const SetCall& c);

// ---- give.cpp
template <class T>
void give_to(int fd, int level, int name, const T& value) {
  (void)libc().setsockopt(fd, level, name, &value, sizeof value);
}

// ---- socket.cpp
/// OptionHandling::apply of the IP options: route and header fields.
void apply_ip(LiveConnection& c);
/// The same for the bound interface.
void apply_device(LiveConnection& c);

// ---- ip.cpp, tcp.cpp
/// IP_MTU and IPV6_MTU.
std::optional<Result<void>> tell_mtu(const GetCall& c, Engine& e);
/// SO_KEEPALIVE and TCP_KEEP*.
void apply_keepalive(LiveConnection& c);

// ---- multicast.cpp
bool change_groups(const SetCall& c);
/// Before the kernel joins, whose queue would have to hold the feed: opens the interface, which
/// takes milliseconds.
void open_for_join(const SetCall& c);
/// IP_MULTICAST_IF.
void keep_multicast_if(const SetCall& c, SocketOptions& o);

}  // namespace vireo
