// getsockopt(2): answered by the live flow, from the kept options, or by the kernel socket beneath.
#include "stack/sock/calls.h"
#include "stack/sock/options/call.h"
#include "stack/sock/served_by.h"

namespace vireo::sock {
namespace {

/// Answers for an accepted connection, which has no kernel socket of its own to ask. nullopt: the
/// value is not kept. Control lock held.
std::optional<Result<void>> read_kept(const GetCall& c) {
  const OptionHandling& how = c.row.how;
  if (how.read != nullptr)
    if (auto r = how.read(c)) return r;
  const bool is_v6 = c.file().domain.load(std::memory_order_relaxed) == AF_INET6;
  const bool is_kept = how.kept != nullptr && c.row.tcp != OptionClass::kKernels;
  if (!is_kept || (c.row.level == IPPROTO_IPV6 && !is_v6)) return std::nullopt;
  SocketOptions o = *c.file().tcp.options;
  return c.give(how.kept(o));
}

}  // namespace

Result<void> getsockopt(Handle h, int level, int name, void* value, socklen_t* len) {
  File& f = *h.file;
  const bool is_of_kind = level == SOL_SOCKET && (name == SO_TYPE || name == SO_DOMAIN ||
                                                  name == SO_PROTOCOL || name == SO_ACCEPTCONN);
  if (!is_of_kind && is_void_connection(h)) (void)use(h, "getsockopt");
  const SocketOption* const row = find_option(level, name);
  if (row != nullptr && f.mode.load(std::memory_order_acquire) != Mode::kKernel) {
    const GetCall call{h, *row, value, len};
    if (row->how.tell != nullptr)
      if (auto r = row->how.tell(call)) return *r;
    if (f.is_carried() && f.placeholder) {
      const LockGuard control(f.control);
      if (!h.is_alive()) return fail(EBADF, "getsockopt");
      if (auto r = read_kept(call)) return *r;
    }
  }
  if (libc().getsockopt(h.fd, level, name, value, len) != 0) return fail_errno("getsockopt");
  return {};
}

bool has_timeout(Handle h, bool sending) {
  const auto& t = sending ? h->snd_timeout_ns : h->rcv_timeout_ns;
  return t.load(std::memory_order_relaxed) != 0;
}

}  // namespace vireo::sock
