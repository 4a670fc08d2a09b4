// setsockopt(2): the kernel socket validates the value, its result is kept, and the live flow is
// updated; or the socket moves to the kernel.
#include <netinet/in.h>

#include <algorithm>

#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/hand_over.h"
#include "stack/sock/listener.h"
#include "stack/sock/options/call.h"
#include "stack/sock/options/options.h"
#include "stack/sock/served_by.h"
#include "stack/sock/stack.h"
#include "stack/sock/udp_socket.h"

namespace vireo {
namespace {

/// Whether the kernel accepts the option for a socket of this family. Not tried on a carried
/// connection's kernel socket, which is not connected and may be shared.
Result<void> kernel_judges(const SetCall& c) {
  // A stream that is not connected refuses to number its bytes.
  const bool numbers =
      c.level == SOL_SOCKET && (c.name == SO_TIMESTAMPING_OLD || c.name == SO_TIMESTAMPING_NEW);
  const UniqueFd fd(libc().socket(c.file().domain.load(std::memory_order_relaxed),
                                  (numbers ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("setsockopt");
  return c.by_kernel(fd.get());
}

Refusal why_left(const SetCall& c) {
  return {Carriage::kOption, 0, c.row != nullptr ? c.row->text : "one that Vireo does not know"};
}
Forced forced_by(const SetCall& c) { return {Carriage::kOption, id_of(c.row)}; }

/// The kernel socket that judged was not connected, which the option asks for, but this one is.
bool is_misjudged(const SetCall& c, const Result<void>& judged) {
  if (judged || judged.error().code != ENOTCONN) return false;
  const File& f = c.file();
  const EngineGuard guard(*f.engine.load(std::memory_order_relaxed));
  return f.flow != nullptr && tcp::state(f.tcp_flow().tcb) == tcp::State::kEstablished;
}

/// leave_to_kernel() for a carried connection. Errors: the row's or EOPNOTSUPP if it cannot
/// continue on the kernel; the kernel's.
Result<void> leave_connected(const SetCall& c) {
  File& f = c.file();
  const bool has_error = c.row != nullptr && c.row->error != 0;
  if (auto ok = hand_over_connection(f, why_left(c)); !ok)
    return fail(has_error ? c.row->error : EOPNOTSUPP, "setsockopt");
  f.forced = forced_by(c);
  f.ready.notify(kModeChanged | kReadyIn | kReadyOut);
  return c.by_kernel();
}

/// Sets the option on the kernel socket, which validates it, and keeps the result in `o`.
Result<void> set_and_keep(const SetCall& c, SocketOptions& o) {
  if (c.row != nullptr && c.row->how.change_groups != nullptr && c.file().is_udp())
    open_for_join(c);
  if (auto ok = c.by_kernel(); !ok) return ok;
  if (c.row != nullptr && c.row->how.keep != nullptr)
    c.row->how.keep(c, o);
  else if (c.row != nullptr && c.row->how.kept != nullptr)
    (void)c.read_back(c.name, c.row->how.kept(o));
  return {};
}

/// Whether the value needs the kernel.
bool asks_for_kernel(const SetCall& c) {
  if (c.row == nullptr) return true;
  const File& f = c.file();
  const int value = c.as_int();
  return c.row->leaves_with(value, c.len, f.is_udp()) ||
         (c.row->how.leaves != nullptr && c.row->how.leaves(f, value));
}

void apply_to_udp(const SetCall& c) {
  if (c.row == nullptr || c.row->how.change_groups == nullptr || !c.row->how.change_groups(c))
    udp_socket::apply_options(c.file(), c.h.fd);
}

}  // namespace

void leave_to_kernel(const SetCall& c) {
  File& f = c.file();
  const Refusal why = why_left(c);
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  if (f.is_udp()) return udp_socket::give_up(f, why, forced_by(c));
  if (mode == Mode::kListening) {
    listener::give_to_kernel(f, c.h.fd, why, forced_by(c));
    f.ready.notify(kModeChanged);
  } else {
    f.forced = forced_by(c);  // for its next connect
  }
}

void apply_to_tcp(const SetCall& c) {
  File& f = c.file();
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  if (mode != Mode::kCarried && mode != Mode::kListening) return;
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const bool listens = mode == Mode::kListening;
  const ListenOptions of_listener = listens ? listener::listen_options(f, c.h.fd) : ListenOptions{};
  const EngineGuard guard(e);
  if (f.flow == nullptr) return;
  if (listens) {
    const uint16_t mss = f.listener().config.mss;
    f.listener().config = f.tcp.options.config();
    f.listener().config.mss = std::min(mss, f.listener().config.mss);
    // If refused (an interface that is not carried), the kernel's listener beneath receives there.
    (void)e.listeners().hear_by(f.listener(), of_listener.device);
    f.listener().options = of_listener;
    return;
  }
  LiveConnection live{f, f.tcp_flow(), *f.tcp.options, f.tcp.options.config(), Clock::now()};
  if (c.row->how.apply != nullptr) c.row->how.apply(live);
  e.tcp().progress(live.flow, live.now);
}

Result<void> sock::setsockopt(Handle h, int level, int name, const void* value, socklen_t len) {
  File& f = *h.file;
  if (is_void_connection(h)) (void)use(h, "setsockopt");
  const LockGuard control(f.control);
  if (!h.is_alive()) return fail(EBADF, "setsockopt");
  const SocketOption* const row = find_option(level, name);
  const SetCall call{h, row, level, name, value, len};
  if (row != nullptr && row->how.set != nullptr)
    if (const auto done = row->how.set(call)) return *done;
  f.touch();
  const bool is_connection = f.is_tcp() && f.mode.load(std::memory_order_relaxed) == Mode::kCarried;
  if (is_connection && row != nullptr && row->how.is_fixed != nullptr && row->how.is_fixed(call))
    return fail(EINVAL, "setsockopt");
  const OptionClass kind = row != nullptr ? row->of(f.is_udp()) : OptionClass::kLeaves;
  const bool leaves = asks_for_kernel(call);
  if (is_connection && (kind == OptionClass::kLeaves || kind == OptionClass::kRefused)) {
    const auto judged = kernel_judges(call);
    if (kind == OptionClass::kRefused && (!judged || leaves)) return fail(row->error, "setsockopt");
    if (!judged && !is_misjudged(call, judged)) return judged;
    if (leaves) return leave_connected(call);
  }
  SocketOptions o = f.is_tcp() ? *f.tcp.options : f.udp->options;
  if (f.placeholder) {
    // The placeholder validates the value: limits and errno are the kernel's.
    const LockGuard judge(f.stack->placeholders().lock());
    if (auto ok = set_and_keep(call, o); !ok) return ok;
  } else {
    if (auto ok = set_and_keep(call, o); !ok) return ok;
  }
  if (auto ok = replace_options(f, o); !ok) return ok;
  if (leaves)
    leave_to_kernel(call);
  else if (f.is_udp())
    apply_to_udp(call);
  else
    apply_to_tcp(call);
  return {};
}

}  // namespace vireo
