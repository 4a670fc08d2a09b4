// Reads a kernel connection's state by TCP_REPAIR, and continues it.
#include "stack/sock/promotion.h"

#include <linux/bpf.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "stack/sock/blocking.h"
#include "stack/sock/carriage.h"
#include "stack/sock/options/options.h"
#include "stack/sock/packet_filter.h"
#include "stack/sock/protected_fds.h"
#include "stack/sock/stack.h"
#include "stack/tcp/take_over.h"

namespace vireo {
namespace {

constexpr Duration kLinger = Duration::ms(50);
constexpr int kMostUnread = 128 << 10;
constexpr uint8_t kEstablished = 1;  // in tcp_info (Linux net/tcp_states.h)
constexpr uint8_t kOptUsecTs = 64;   // TCPI_OPT_USEC_TS, Linux 6.7

std::unexpected<Refusal> keep_with_kernel(const char* why, int err = 0) {
  return std::unexpected(Refusal{Carriage::kInherited, err, why});
}

bool set_int(int fd, int name, int value) {
  return libc().setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value) == 0;
}
template <class T>
bool get(int fd, int name, T& value) {
  socklen_t n = sizeof value;
  return libc().getsockopt(fd, IPPROTO_TCP, name, &value, &n) == 0;
}

/// State that the kernel gives only in repair mode.
struct Repaired {
  uint32_t snd_nxt = 0, rcv_nxt = 0;
  tcp_repair_window windows{};
  int peer_mss = 0;
  uint32_t timestamp = 0;

  bool operator==(const Repaired& o) const { return snd_nxt == o.snd_nxt && rcv_nxt == o.rcv_nxt; }
};

bool read_repaired(int fd, Repaired& r) {
  return set_int(fd, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE) && get(fd, TCP_QUEUE_SEQ, r.snd_nxt) &&
         set_int(fd, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE) && get(fd, TCP_QUEUE_SEQ, r.rcv_nxt) &&
         get(fd, TCP_REPAIR_WINDOW, r.windows) && get(fd, TCP_MAXSEG, r.peer_mss) &&
         get(fd, TCP_TIMESTAMP, r.timestamp);
}

/// Established, without anything that TCP_REPAIR does not tell.
bool is_plain(int fd, const tcp_info& info) {
  int unsent = 0;
  pollfd urgent{fd, POLLPRI, 0};
  return info.tcpi_state == kEstablished && (info.tcpi_options & kOptUsecTs) == 0 &&
         info.tcpi_rcv_ooopack == 0 && ::ioctl(fd, SIOCOUTQ, &unsent) == 0 && unsent == 0 &&
         kernel::poll_now(&urgent, 1) == 0;
}

/// The received bytes, which stay in the kernel's queue. Repair mode, receive queue.
bool read_unread(int fd, std::vector<std::byte>& to) {
  int bytes = 0;
  if (::ioctl(fd, SIOCINQ, &bytes) != 0 || bytes < 0 || bytes > kMostUnread) return false;
  to.resize(static_cast<size_t>(bytes));
  if (bytes == 0) return true;
  iovec all{to.data(), to.size()};
  msghdr m{};
  m.msg_iov = &all;
  m.msg_iovlen = 1;
  return kernel::recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT) == bytes;
}

Result<tcp::TakeOver> read_state(int fd, std::vector<std::byte>& unread) {
  // Not changed after the filter but by a thread of the kernel that has just passed it.
  constexpr int kLooks = 8;
  for (int looks = 0; looks < kLooks; ++looks) {
    tcp_info info{};
    Repaired r;
    Repaired again;
    if (!get(fd, TCP_INFO, info)) return fail_errno("TCP_INFO");
    if (!is_plain(fd, info)) return fail(EAGAIN, "not a plain connection");
    if (!read_repaired(fd, r)) return fail_errno("TCP_REPAIR");
    if (!read_unread(fd, unread)) return fail(EAGAIN, "much that was not read");
    if (!read_repaired(fd, again)) return fail_errno("TCP_REPAIR");
    if (r != again) continue;
    tcp::TakeOver o;
    o.snd_nxt = Seq32(r.snd_nxt);
    o.rcv_nxt = Seq32(r.rcv_nxt);
    o.rcv_acked = Seq32(r.windows.rcv_wup);
    o.rcv_adv = Seq32(r.windows.rcv_wup + r.windows.rcv_wnd);
    o.unread = unread;
    o.peer_mss = static_cast<uint16_t>(std::clamp(r.peer_mss, 88, 65535));
    o.wscale = (info.tcpi_options & TCPI_OPT_WSCALE) != 0;
    o.snd_wscale = info.tcpi_snd_wscale;
    o.rcv_wscale = info.tcpi_rcv_wscale;
    o.sack = (info.tcpi_options & TCPI_OPT_SACK) != 0;
    o.timestamps = (info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0;
    o.ecn = (info.tcpi_options & TCPI_OPT_ECN) != 0;
    o.timestamp = again.timestamp;
    o.snd_wl1 = Seq32(r.windows.snd_wl1);
    o.snd_wnd = r.windows.snd_wnd;
    o.max_wnd = r.windows.max_window;
    o.srtt = Duration::us(info.tcpi_rtt);
    return o;
  }
  return fail(EAGAIN, "it changes");
}

}  // namespace

void Promotion::fork_child() noexcept {
  lock_.reset_after_fork();
  for (Old& o : old_) (void)o.fd.release();
  old_.clear();
  (void)drop_all_.release();
}

int Promotion::drop_all() noexcept {
  if (drop_all_) return drop_all_.get();
  // r0 = 0; exit
  static constexpr bpf_insn kProgram[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0},
                                          {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  bpf_attr a{};
  a.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
  a.insns = reinterpret_cast<uintptr_t>(kProgram);
  a.insn_cnt = std::size(kProgram);
  a.license = reinterpret_cast<uintptr_t>("BSD");
  const auto fd = static_cast<int>(::syscall(SYS_bpf, BPF_PROG_LOAD, &a, sizeof a));
  if (fd >= 0) drop_all_.reset(protect_fd(fd));
  return drop_all_.get();
}

bool Promotion::keep_old(UniqueFd fd, Instant now) noexcept {
  const LockGuard guard(lock_);
  const bool first = old_.empty();
  old_.push_back({now, std::move(fd)});
  return first;
}

void Promotion::close_old(Instant until) noexcept {
  const LockGuard guard(lock_);
  while (!old_.empty() && old_.front().since <= until) old_.pop_front();
}

Duration Promotion::tend(Instant now) noexcept {
  close_old(now - kLinger);
  const LockGuard guard(lock_);
  return old_.empty() ? Duration::s(3600) : old_.front().since + kLinger - now + Duration::ms(1);
}

Carried<void> Promotion::take_over(File& f, int fd, const Endpoint& local, const Endpoint& peer) {
  Stack& stack = *f.stack;
  if (!stack.settings().promote) return keep_with_kernel("its listener");
  if (is_stopped_.load(std::memory_order_relaxed)) return keep_with_kernel("for a child");
  if (auto may = may_carry(stack, Role::kTcpServer, {}, local, {}); !may) return may;
  const IpSettings ip = ip_settings(*f.tcp.options, !local.addr.is_v4());
  const RouteRequest way{.dst = peer.addr,
                         .src = local.addr,
                         .oif = IfIndex(peer.scope),
                         .tos = ip.tos,
                         .mark = ip.mark,
                         .hears = true};
  const auto engine = stack.engine_for({.local = local, .way = &way});
  if (!engine) return std::unexpected(engine.error());
  Engine& e = **engine;
  look_at_filter(stack);
  const Passage passage{.local = local, .remote = peer, .begins_there = true};
  const uint32_t rules = rules_generation(stack);
  if (auto pass = may_pass(stack, passage); !pass) return pass;
  int filter = -1;
  {
    const LockGuard guard(lock_);
    filter = drop_all();
  }
  if (filter < 0) return keep_with_kernel("no socket filter", errno);
  UniqueFd old(libc().fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!old) return keep_with_kernel("no descriptor", errno);
  old.reset(protect_fd(old.release()));

  std::vector<std::byte> unread;
  EngineGuard guard(e);
  const Instant now = Clock::now();
  if (auto pass = may_still_pass(stack, passage, rules); !pass) return pass;
  const auto route = e.next_hops().route(way);
  if (!route) return std::unexpected(route.error());
  const FlowKey key{IpProto::kTcp, !local.addr.is_v4(), VlanId(), local, peer};
  const auto flow = e.tcp().begin_take_over(*route, key, ip, now);
  if (!flow) return std::unexpected(flow.error());
  bool is_deaf = libc().setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &filter, sizeof filter) == 0;
  bool is_repaired = is_deaf && set_int(fd, TCP_REPAIR, 1);
  Result<tcp::TakeOver> state =
      is_repaired ? read_state(fd, unread) : Result<tcp::TakeOver>(fail_errno("TCP_REPAIR"));
  if (!state || !e.tcp().finish_take_over(**flow, f.tcp.options.config(), *state, &f, *f.stats,
                                          Clock::now())) {
    e.tcp().free(**flow);
    // -1: without a window probe.
    if (is_repaired) (void)set_int(fd, TCP_REPAIR, -1);
    if (is_deaf) (void)libc().setsockopt(fd, SOL_SOCKET, SO_DETACH_BPF, &filter, sizeof filter);
    return state ? keep_with_kernel("no buffers", ENOBUFS)
                 : keep_with_kernel(state.error().where, state.error().code);
  }
  f.flow = *flow;
  f.engine.store(&e, std::memory_order_release);
  f.mode.store(Mode::kCarried, std::memory_order_release);
  guard.unlock();
  const int flags = libc().fcntl(fd, F_GETFD);
  const bool cloexec = flags > 0 && (flags & FD_CLOEXEC) != 0;
  if (auto place =
          stack.placeholders().take_number(f.domain.load(std::memory_order_relaxed), cloexec);
      place) {
    (void)libc().dup3(*place, fd, cloexec ? O_CLOEXEC : 0);
    kernel::close(*place);
    f.placeholder = true;
  }
  if (keep_old(std::move(old), now)) stack.wake_helper();
  return {};
}

}  // namespace vireo
