// Rows of tcp(7).
#include <linux/tcp.h>

#include <cerrno>
#include <string_view>

#include "stack/sock/blocking.h"
#include "stack/sock/options/call.h"
#include "stack/sock/options/options.h"
#include "stack/sock/options/rows.h"
#include "stack/sock/stack.h"
#include "stack/tcp/linux_info.h"

// Newer than the headers of Debian 12.
#define TCP_AO_ADD_KEY 38
#define TCP_AO_DEL_KEY 39
#define TCP_AO_INFO 40
#define TCP_AO_GET_KEYS 41
#define TCP_AO_REPAIR 42
#define TCP_IS_MPTCP 43
#ifndef TCP_RTO_MAX_MS  // Linux 6.15
#define TCP_RTO_MAX_MS 44
#define TCP_RTO_MIN_US 45
#define TCP_DELACK_MAX_US 46
#endif

namespace vireo {

void apply_keepalive(LiveConnection& c) {
  const TcpOptions& o = c.o.tcp;
  tcp::set_keepalive(c.tcb(), c.o.socket.keepalive != 0, Duration::s(o.keepidle),
                     Duration::s(o.keepintvl), static_cast<uint8_t>(o.keepcnt), c.now);
}

namespace {

template <int TcpOptions::* kMember>
int& kept(SocketOptions& o) {
  return o.tcp.*kMember;
}

/// Applies a value of the configuration to a live connection.
template <auto kSet, auto kMember>
void apply(LiveConnection& c) {
  kSet(c.tcb(), c.config.*kMember);
}

/// For options of connection setup, which is over.
void give_nothing(const File&, int) {}
bool is_always_fixed(const SetCall&) { return true; }

// ---- TCP_NODELAY: set on most new connections, and any value is valid. So it is set on the
// kernel socket beneath a carried connection only when that is no longer carried (drop_flow()).

Result<void> keep_nodelay(const SetCall& c) {
  File& f = c.file();
  if (static_cast<int>(c.len) < static_cast<int>(sizeof(int))) return fail(EINVAL, "setsockopt");
  if (!is_readable(static_cast<const int*>(c.value))) return fail(EFAULT, "setsockopt");
  SocketOptions o = *f.tcp.options;
  o.tcp.nodelay = c.as_int() != 0 ? 1 : 0;
  if (auto ok = replace_options(f, o); !ok) return ok;
  if (f.is_carried()) apply_to_tcp(c);
  return {};
}
std::optional<Result<void>> set_nodelay(const SetCall& c) {
  File& f = c.file();
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  if (!f.is_tcp() || (mode != Mode::kUndecided && mode != Mode::kCarried)) return std::nullopt;
  if (mode == Mode::kCarried) return keep_nodelay(c);
  // The socket may still become the kernel's.
  if (f.place.load(std::memory_order_relaxed) != 0) {
    if (auto ok = keep_nodelay(c); !ok) return ok;
    if (f.stack->shadow_reserve().set_nodelay(f, c.as_int() != 0)) return Result<void>();
  }
  if (auto ok = c.by_kernel(); !ok) return ok;
  f.made_in.fetch_or(File::kNoDelay, std::memory_order_relaxed);
  return keep_nodelay(c);
}
void apply_nodelay(LiveConnection& c) { tcp::set_nodelay(c.tcb(), c.o.tcp.nodelay != 0, c.now); }
std::optional<Result<void>> tell_nodelay(const GetCall& c) {
  File& f = c.file();
  if (!f.is_tcp()) return std::nullopt;
  if (f.is_carried()) {
    const LockGuard control(f.control);
    if (!c.h.is_alive()) return fail(EBADF, "getsockopt");
    return c.give(f.tcp.options->tcp.nodelay);
  }
  const auto on = f.stack->shadow_reserve().nodelay(f);
  if (!on) return std::nullopt;
  return c.give(*on ? 1 : 0);
}

void apply_cork(LiveConnection& c) { tcp::set_cork(c.tcb(), c.o.tcp.cork != 0, c.now); }

void apply_notsent_lowat(LiveConnection& c) {
  if (has(tcp::set_notsent_lowat(c.tcb(), c.config.notsent_lowat), tcp::Effects::kWritable))
    c.f.ready.notify(kReadyOut);
}

/// TCP_WINDOW_CLAMP cannot be cleared.
bool is_zero(const SetCall& c) {
  return c.len >= sizeof(int) && is_readable(c.value, sizeof(int)) && c.as_int() == 0;
}

/// 0 means never set; the kernel then reports its default.
std::optional<Result<void>> read_kernel_default(const GetCall& c) {
  SocketOptions o = *c.file().tcp.options;
  if (c.row.how.kept(o) != 0) return std::nullopt;
  const UniqueFd fd(libc().socket(c.file().domain.load(std::memory_order_relaxed),
                                  SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd || libc().getsockopt(fd.get(), c.row.level, c.row.name, c.value, c.len) != 0)
    return fail_errno("getsockopt");
  return Result<void>();
}

// ---- TCP_MAXSEG, TCP_QUICKACK, TCP_INFO: answered by the connection

void keep_maxseg(const SetCall& c, SocketOptions& o) { o.tcp.maxseg = c.as_int(); }
std::optional<Result<void>> tell_maxseg(const GetCall& c, Engine& e) {
  const File& f = c.file();
  const EngineGuard guard(e);
  if (!f.is_tcp() || f.flow == nullptr) return std::nullopt;
  return c.give(static_cast<int>(tcp::effective_mss(f.tcp_flow().tcb)));
}
void give_maxseg(const File& f, int fd) {
  const int maxseg = f.tcp.options->tcp.maxseg;
  if (maxseg != 0) give_to(fd, IPPROTO_TCP, TCP_MAXSEG, maxseg);
}

void keep_quickack(const SetCall& c, SocketOptions& o) { o.tcp.quickack = c.as_int() != 0 ? 1 : 0; }
void apply_quickack(LiveConnection& c) { tcp::set_quickack(c.tcb(), c.o.tcp.quickack != 0, c.now); }
std::optional<Result<void>> tell_quickack(const GetCall& c, Engine& e) {
  const File& f = c.file();
  const EngineGuard guard(e);
  if (!f.is_tcp() || f.flow == nullptr) return std::nullopt;
  return c.give(tcp::is_quick(f.tcp_flow().tcb) ? 1 : 0);
}
void give_quickack(const File& f, int fd) {
  const int quickack = f.tcp.options->tcp.quickack;
  if (quickack >= 0) give_to(fd, IPPROTO_TCP, TCP_QUICKACK, quickack);
}

std::optional<Result<void>> tell_info(const GetCall& c, Engine& e) {
  const File& f = c.file();
  const EngineGuard guard(e);
  if (!f.is_tcp() || f.flow == nullptr) return std::nullopt;
  tcp_info info = tcp::linux_info(f.tcp_flow().tcb, Clock::now());
  info.tcpi_pmtu = f.tcp_flow().egress.mtu;
  return c.give(info);
}

/// TCP_ZEROCOPY_RECEIVE: the answer for a connection whose pages cannot be mapped.
std::optional<Result<void>> tell_zerocopy(const GetCall& c, Engine&) {
  if (!c.file().is_tcp()) return std::nullopt;
  return fail(EOPNOTSUPP, "getsockopt");
}

// ---- TCP_CONGESTION: Vireo's algorithms work even if the kernel lacks them; one that only the
// ---- kernel has keeps the socket there, and an unknown one fails with ENOENT

/// With or without a NUL at the end.
std::string_view congestion_name(const void* value, socklen_t len) {
  const std::string_view s(static_cast<const char*>(value), std::min<socklen_t>(len, 15));
  return s.substr(0, s.find('\0'));
}
std::optional<Result<void>> set_congestion(const SetCall& c) {
  File& f = c.file();
  if (!f.is_tcp()) return std::nullopt;
  f.touch();
  if (static_cast<int>(c.len) < 1) return fail(EINVAL, "setsockopt");
  if (!is_readable(c.value, std::min<socklen_t>(c.len, 15))) return fail(EFAULT, "setsockopt");
  const auto kind = tcp::cc_kind(congestion_name(c.value, c.len));
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  if (!kind && mode == Mode::kCarried) return fail(ENOENT, "setsockopt");
  if (!kind || mode == Mode::kKernel) {
    if (auto ok = c.by_kernel(); !ok) return ok;
    leave_to_kernel(c);
    return Result<void>();
  }
  if (!f.placeholder) (void)c.by_kernel();
  SocketOptions o = *f.tcp.options;
  o.tcp.congestion = kind;
  if (auto ok = replace_options(f, o); !ok) return ok;
  apply_to_tcp(c);
  return Result<void>();
}
void apply_congestion(LiveConnection& c) {
  if (c.o.tcp.congestion) tcp::set_congestion(c.tcb(), *c.o.tcp.congestion);
}
std::optional<Result<void>> tell_congestion(const GetCall& c) {
  File& f = c.file();
  if (!f.is_tcp()) return std::nullopt;
  const LockGuard control(f.control);
  if (!c.h.is_alive()) return fail(EBADF, "getsockopt");
  char name[16] = {};
  const auto kind = f.tcp.options->tcp.congestion.value_or(default_congestion(*f.stack));
  tcp::cc_name(kind).copy(name, sizeof name - 1);
  return c.give(name);
}
void give_congestion(const File& f, int fd) {
  if (!f.tcp.options->tcp.congestion) return;
  const std::string_view name = tcp::cc_name(*f.tcp.options->tcp.congestion);
  (void)libc().setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                          static_cast<socklen_t>(name.size()));
}

using namespace rows;
#define TCP(name) IPPROTO_TCP, name, #name

constexpr SocketOption kRows[] = {
    ours(TCP(TCP_NODELAY), {.kept = kept<&TcpOptions::nodelay>,
                            .set = set_nodelay,
                            .apply = apply_nodelay,
                            .tell = tell_nodelay}),
    ours(TCP(TCP_MAXSEG), {.keep = keep_maxseg, .tell = of_flow<tell_maxseg>, .give = give_maxseg}),
    ours(TCP(TCP_CORK), {.kept = kept<&TcpOptions::cork>, .apply = apply_cork}),
    ours(TCP(TCP_KEEPIDLE), {.kept = kept<&TcpOptions::keepidle>, .apply = apply_keepalive}),
    ours(TCP(TCP_KEEPINTVL), {.kept = kept<&TcpOptions::keepintvl>, .apply = apply_keepalive}),
    ours(TCP(TCP_KEEPCNT), {.kept = kept<&TcpOptions::keepcnt>, .apply = apply_keepalive}),
    ours(TCP(TCP_SYNCNT), {.kept = kept<&TcpOptions::syncnt>,
                           .apply = apply<tcp::set_syn_retries, &tcp::Config::syn_retries>}),
    ours(TCP(TCP_LINGER2), {.kept = kept<&TcpOptions::linger2>,
                            .apply = apply<tcp::set_fin_timeout, &tcp::Config::fin_timeout>}),
    ours(TCP(TCP_DEFER_ACCEPT), {.kept = kept<&TcpOptions::defer_accept>, .give = give_nothing}),
    ours(TCP(TCP_WINDOW_CLAMP),
         {.kept = kept<&TcpOptions::window_clamp>,
          .is_fixed = is_zero,
          .apply = apply<tcp::set_window_clamp, &tcp::Config::window_clamp>}),
    ours(TCP(TCP_INFO), {.tell = of_flow<tell_info>}),
    ours(TCP(TCP_QUICKACK), {.keep = keep_quickack,
                             .apply = apply_quickack,
                             .tell = of_flow<tell_quickack>,
                             .give = give_quickack}),
    ours(TCP(TCP_CONGESTION), {.set = set_congestion,
                               .apply = apply_congestion,
                               .tell = tell_congestion,
                               .give = give_congestion}),
    leaves(TCP(TCP_MD5SIG), kSet),
    leaves(TCP(TCP_THIN_LINEAR_TIMEOUTS)),
    kernels(TCP(TCP_THIN_DUPACK)),  // no longer in Linux
    ours(TCP(TCP_USER_TIMEOUT),
         {.kept = kept<&TcpOptions::user_timeout_ms>,
          .apply = apply<tcp::set_user_timeout, &tcp::Config::user_timeout>}),
    leaves(TCP(TCP_REPAIR), kSet),
    leaves(TCP(TCP_REPAIR_QUEUE), kSet),
    leaves(TCP(TCP_QUEUE_SEQ), kSet),
    leaves(TCP(TCP_REPAIR_OPTIONS), kSet),
    ours(TCP(TCP_FASTOPEN),
         {.kept = kept<&TcpOptions::fastopen>, .is_fixed = is_always_fixed, .give = give_nothing}),
    leaves(TCP(TCP_TIMESTAMP), kSet),
    ours(TCP(TCP_NOTSENT_LOWAT),
         {.kept = kept<&TcpOptions::notsent_lowat>, .apply = apply_notsent_lowat}),
    kernels(TCP(TCP_CC_INFO)),
    leaves(TCP(TCP_SAVE_SYN)),
    kernels(TCP(TCP_SAVED_SYN)),
    leaves(TCP(TCP_REPAIR_WINDOW), kSet),
    ours(TCP(TCP_FASTOPEN_CONNECT), {.kept = kept<&TcpOptions::fastopen_connect>,
                                     .is_fixed = is_always_fixed,
                                     .give = give_nothing}),
    // TLS by the kernel. A connection that cannot become the kernel's: as if it had none.
    {TCP(TCP_ULP), kLeaves, kKernels, kSet, ENOENT},
    leaves(TCP(TCP_MD5SIG_EXT), kSet),
    ours(TCP(TCP_FASTOPEN_KEY)),
    ours(TCP(TCP_FASTOPEN_NO_COOKIE), {.kept = kept<&TcpOptions::fastopen_no_cookie>,
                                       .is_fixed = is_always_fixed,
                                       .give = give_nothing}),
    ours(TCP(TCP_ZEROCOPY_RECEIVE), {.tell = of_flow<tell_zerocopy>}),  // refused
    ours(TCP(TCP_INQ), {.kept = kept<&TcpOptions::inq>}),
    leaves(TCP(TCP_TX_DELAY)),
    leaves(TCP(TCP_AO_ADD_KEY), kSet),
    leaves(TCP(TCP_AO_DEL_KEY), kSet),
    leaves(TCP(TCP_AO_INFO), kSet),
    kernels(TCP(TCP_AO_GET_KEYS)),
    leaves(TCP(TCP_AO_REPAIR), kSet),
    kernels(TCP(TCP_IS_MPTCP)),
    ours(TCP(TCP_RTO_MAX_MS), {.kept = kept<&TcpOptions::rto_max_ms>,
                               .apply = apply<tcp::set_rto_max, &tcp::Config::rto_max>,
                               .read = read_kernel_default}),
    ours(TCP(TCP_RTO_MIN_US), {.kept = kept<&TcpOptions::rto_min_us>,
                               .apply = apply<tcp::set_rto_min, &tcp::Config::rto_min>,
                               .read = read_kernel_default}),
    ours(TCP(TCP_DELACK_MAX_US), {.kept = kept<&TcpOptions::delack_max_us>,
                                  .apply = apply<tcp::set_delack_max, &tcp::Config::delack_max>,
                                  .read = read_kernel_default}),
};

#undef TCP

}  // namespace

constinit const OptionLevel kTcpLevel(kRows);

}  // namespace vireo
