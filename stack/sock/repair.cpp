// TCP_REPAIR step by step. To the kernel: state, queues, options, and the FINs that it must know
// of. From it: the same but for the FINs.
#include "stack/sock/repair.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/checksum.h"
#include "stack/sock/async_io.h"
#include "stack/sock/calls.h"
#include "stack/sock/options/options.h"
#include "stack/sock/shadow.h"
#include "stack/sock/stamps.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/ipv6.h"
#include "stack/wire/tcp.h"

#ifndef SO_BUF_LOCK  // Linux 5.14
#define SO_BUF_LOCK 72
#define SOCK_SNDBUF_LOCK 1
#define SOCK_RCVBUF_LOCK 2
#endif

namespace vireo {
namespace {

Result<void> set(int fd, int level, int name, const void* value, size_t bytes) {
  if (libc().setsockopt(fd, level, name, value, static_cast<socklen_t>(bytes)) != 0)
    return fail_errno("TCP_REPAIR");
  return {};
}
Result<void> set_int(int fd, int name, int value) {
  return set(fd, IPPROTO_TCP, name, &value, sizeof value);
}

enum : uint32_t { kMss = 2, kWindowScale, kSackPermitted, kTimestamps = 8 };  // kinds of options
enum : int { kNoWindowProbe = -1, kOff, kOn };  // values of TCP_REPAIR
// In tcp_info (Linux net/tcp_states.h).
enum : uint8_t { kEstablished = 1, kFinWait2 = 5, kCloseWait = 8 };
constexpr uint8_t kOptUsecTs = 64;       // TCPI_OPT_USEC_TS, Linux 6.7
constexpr size_t kExtraRoom = 64 << 10;  // in a buffer, beyond the queued data
constexpr int kMostUnread = 128 << 10;
constexpr int kMaxLooks = 1000;

template <class T>
Result<T> get(int fd, int name) {
  T value{};
  socklen_t n = sizeof value;
  if (libc().getsockopt(fd, IPPROTO_TCP, name, &value, &n) != 0) return fail_errno("TCP_REPAIR");
  return value;
}

Result<void> name_ends(int fd, int domain, const FlowKey& key) {
  sockaddr_storage sa{};
  socklen_t n = key.local.to_sockaddr(sa, domain);
  if (libc().bind(fd, reinterpret_cast<const sockaddr*>(&sa), n) != 0) return fail_errno("bind");
  n = key.remote.to_sockaddr(sa, domain);
  if (kernel::connect(fd, reinterpret_cast<const sockaddr*>(&sa), n) != 0)
    return fail_errno("connect");
  return {};
}

Result<void> put(int fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    iovec piece{const_cast<std::byte*>(data.data()), std::min<size_t>(data.size(), 32768)};
    msghdr m{};
    m.msg_iov = &piece;
    m.msg_iovlen = 1;
    const ssize_t n = kernel::sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0) return fail_errno("send");
    data = data.subspan(static_cast<size_t>(n));
  }
  return {};
}

/// Enlarges a buffer to hold `bytes` at once, and the kernel's overhead. This locks the size;
/// settle_buffers() unlocks it.
void make_room(int fd, int ask, int force, size_t bytes) {
  int value = 0;
  socklen_t n = sizeof value;
  if (libc().getsockopt(fd, SOL_SOCKET, ask, &value, &n) == 0 &&
      static_cast<size_t>(value) / 2 >= bytes)
    return;
  value = static_cast<int>(bytes);  // the kernel doubles it
  (void)set(fd, SOL_SOCKET, force, &value, sizeof value);
}

/// After the data is queued: sets the program's sizes; where it set none, re-enables autotuning.
void settle_buffers(int fd, const SocketOptions& o) {
  const int free_ones =
      (o.socket.sndbuf_set ? SOCK_SNDBUF_LOCK : 0) | (o.socket.rcvbuf_set ? SOCK_RCVBUF_LOCK : 0);
  const auto again = [&](int name, bool is_set, int doubled) {
    const int value = doubled / 2;
    if (is_set) (void)set(fd, SOL_SOCKET, name, &value, sizeof value);
  };
  again(SO_SNDBUF, o.socket.sndbuf_set, o.socket.sndbuf);
  again(SO_RCVBUF, o.socket.rcvbuf_set, o.socket.rcvbuf);
  (void)set(fd, SOL_SOCKET, SO_BUF_LOCK, &free_ones, sizeof free_ones);
}

/// Sends the kernel, by a raw socket, a segment of the peer's that Vireo received and the peer will
/// not repeat. The kernel validates it as any other.
Result<void> say_as_peer(const FlowKey& key, Seq32 seq, Seq32 ack, uint16_t window,
                         wire::TcpFlags flags) {
  wire::TcpHeader tcp{};
  tcp.src_port = be16(key.remote.port);
  tcp.dst_port = be16(key.local.port);
  tcp.seq_raw = be32(seq.value());
  tcp.ack_raw = be32(ack.value());
  tcp.offset_reserved = sizeof tcp / 4 << 4;
  tcp.flag_bits = static_cast<uint8_t>(flags);
  tcp.window = be16(window);
  const auto sum = checksum::pseudo(key.remote.addr, key.local.addr, IpProto::kTcp, sizeof tcp);
  tcp.checksum = checksum::finish(uint64_t{sum} + checksum::sum(&tcp, sizeof tcp));

  wire::Ipv4Header v4{};
  wire::Ipv6Header v6{};
  if (key.v6) {
    v6.version_class_flow = be32(6U << 28);
    v6.payload_length = be16(sizeof tcp);
    v6.next_header = IPPROTO_TCP;
    v6.hop_limit = 64;
    v6.src = key.remote.addr.bytes();
    v6.dst = key.local.addr.bytes();
  } else {
    v4.version_ihl = 0x45;  // the kernel fills in length and checksum (raw(7))
    v4.ttl = 64;
    v4.protocol = IPPROTO_TCP;
    v4.src = key.remote.addr.as_v4();
    v4.dst = key.local.addr.as_v4();
  }
  iovec parts[] = {{key.v6 ? static_cast<void*>(&v6) : &v4, key.v6 ? sizeof v6 : sizeof v4},
                   {&tcp, sizeof tcp}};
  const int family = key.v6 ? AF_INET6 : AF_INET;
  sockaddr_storage to{};
  msghdr m{};
  m.msg_name = &to;
  m.msg_namelen = Endpoint{key.local.addr, 0, key.local.scope}.to_sockaddr(to, family);
  m.msg_iov = parts;
  m.msg_iovlen = std::size(parts);
  const UniqueFd raw(libc().socket(family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  if (!raw || kernel::sendmsg(raw.get(), &m, MSG_DONTWAIT) < 0) return fail_errno("raw socket");
  return {};
}

/// Replays the FINs sent so far, ours and the peer's, and the ACK of ours.
Result<void> tell_of_ends(int fd, const FlowKey& key, const tcp::HandOver& c) {
  using tcp::HandOver;
  // In repair mode nothing is sent: the FIN counts as sent.
  const bool is_acked = c.fin == HandOver::Fin::kAcked;
  if ((is_acked || c.fin == HandOver::Fin::kSent) && libc().shutdown(fd, SHUT_WR) != 0)
    return fail_errno("shutdown");
  if (!is_acked && !c.peer_fin) return {};
  const auto window = static_cast<uint16_t>(std::min(c.snd_wnd >> c.snd_wscale, 65535U));
  const Seq32 ack = c.snd_una + (is_acked ? 1 : 0);
  auto flags = wire::TcpFlags::kAck;
  if (c.peer_fin) flags |= wire::TcpFlags::kFin;
  if (auto ok = say_as_peer(key, c.rcv_nxt, ack, window, flags); !ok) return ok;
  const uint8_t due = c.peer_fin ? kCloseWait : kFinWait2;
  for (int looks = 0; looks < kMaxLooks; ++looks) {
    tcp_info info{};
    socklen_t n = sizeof info;
    if (libc().getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0) break;
    if (info.tcpi_state == due) return {};
    ::sched_yield();  // a busy kernel processes it a moment later
  }
  return fail(EOPNOTSUPP, "its FIN did not get to the kernel");
}

}  // namespace

Result<UniqueFd> begin_repair(const File& f, Engine& e, const FlowKey& key,
                              const tcp::HandOver& c) {
  const int domain = f.domain.load(std::memory_order_relaxed);
  const auto open = [&] { return libc().socket(domain, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP); };
  UniqueFd made(open());
  if (!made && errno == EMFILE && e.tcp().give_up_leases(0)) made.reset(open());
  const int fd = made.get();
  if (fd < 0) return fail_errno("socket");
  give_options(f, fd);
  make_room(fd, SO_SNDBUF, SO_SNDBUFFORCE, c.to_send.size() + kExtraRoom);
  // The peer may send as much as its window allows, in segments that the kernel charges a page for.
  constexpr size_t kChargedBytes = 3;
  make_room(fd, SO_RCVBUF, SO_RCVBUFFORCE, c.unread.size() + kChargedBytes * c.rcv_wnd);
  if (f.nonblock.load(std::memory_order_relaxed)) (void)libc().fcntl(fd, F_SETFL, O_NONBLOCK);
  const auto unread = static_cast<uint32_t>(c.unread.size());
  const uint32_t seq_in = c.rcv_nxt.value() - unread;
  const uint32_t seq_out = c.snd_una.value();
  struct Step {
    int name, value;
  };
  for (const Step& s : {Step{TCP_REPAIR, kOn},
                        {TCP_REPAIR_QUEUE, TCP_RECV_QUEUE},
                        {TCP_QUEUE_SEQ, static_cast<int>(seq_in)},
                        {TCP_REPAIR_QUEUE, TCP_SEND_QUEUE},
                        {TCP_QUEUE_SEQ, static_cast<int>(seq_out)}})
    if (auto ok = set_int(fd, s.name, s.value); !ok) return std::unexpected(ok.error());
  if (auto ok = name_ends(fd, domain, key); !ok) return std::unexpected(ok.error());

  tcp_repair_opt agreed[4];
  size_t n = 0;
  agreed[n++] = {kMss, c.peer_mss};
  if (c.wscale)
    agreed[n++] = {kWindowScale, static_cast<uint32_t>(c.snd_wscale | c.rcv_wscale << 16)};
  if (c.sack) agreed[n++] = {kSackPermitted, 0};
  if (c.timestamps) agreed[n++] = {kTimestamps, 0};
  if (auto ok = set(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, agreed, n * sizeof agreed[0]); !ok)
    return std::unexpected(ok.error());
  if (c.timestamps) {
    // Not behind what is still sent here, or the peer would drop the kernel's segments (PAWS). Its
    // clock may be within a tick.
    const auto since = static_cast<uint32_t>((Clock::now() - c.taken).ns() / 1'000'000 + 1);
    // An odd value would set the clock to microseconds (Linux 6.7), which the peer takes for one
    // that went back after 36 minutes of silence.
    const uint32_t even = (c.timestamp + since + 1) & ~1U;
    if (auto ok = set_int(fd, TCP_TIMESTAMP, static_cast<int>(even)); !ok)
      return std::unexpected(ok.error());
  }

  const std::span<const std::byte> out(c.to_send);
  auto ok = set_int(fd, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE);
  if (ok) ok = put(fd, c.unread);
  if (ok) ok = set_int(fd, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE);
  if (ok) ok = put(fd, out.first(c.sent));
  const tcp_repair_window windows{c.snd_wl1.value(), c.snd_wnd, c.max_wnd, c.rcv_wnd,
                                  c.rcv_nxt.value()};
  if (ok) ok = set(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &windows, sizeof windows);
  if (ok) ok = tell_of_ends(fd, key, c);
  if (!ok) return std::unexpected(ok.error());
  return made;
}

void end_repair(const File& f, int fd, const tcp::HandOver& c) {
  using tcp::HandOver;
  const SocketOptions& o = *f.tcp.options;
  // Sends what was not sent yet, and probes the peer's state.
  const bool is_fin_due = c.fin == HandOver::Fin::kQueued;
  const bool is_all_told = c.sent == c.to_send.size() && !is_fin_due;
  (void)set_int(fd, TCP_REPAIR, is_all_told ? kOff : kNoWindowProbe);
  (void)put(fd, std::span(c.to_send).subspan(c.sent));
  if (is_fin_due) (void)libc().shutdown(fd, SHUT_WR);
  settle_buffers(fd, o);
  // Repair mode has cleared it, and without it no new listener could bind the port.
  if (o.socket.reuse_addr != 0)
    (void)set(fd, SOL_SOCKET, SO_REUSEADDR, &o.socket.reuse_addr, sizeof o.socket.reuse_addr);
  // A socket that is not connected cannot number (net/core/sock.c sock_set_timestamping()).
  if ((stamp_flags(o) & SOF_TIMESTAMPING_OPT_ID) != 0)
    (void)set(fd, SOL_SOCKET, o.socket.stamp_new != 0 ? SO_TIMESTAMPING_NEW : SO_TIMESTAMPING_OLD,
              &o.socket.timestamping, sizeof o.socket.timestamping);
  if ((f.tcp.shut & kShutRead) != 0) (void)libc().shutdown(fd, SHUT_RD);
  if (sock::is_async(f)) {
    const int flags = libc().fcntl(fd, F_GETFL);
    (void)libc().fcntl(fd, F_SETFL, flags | O_ASYNC);
  }
}

namespace {

/// Established, without anything that TCP_REPAIR does not tell.
bool is_plain(int fd, const tcp_info& info) {
  int unsent = 0;
  pollfd urgent{fd, POLLPRI, 0};
  return info.tcpi_state == kEstablished && (info.tcpi_options & kOptUsecTs) == 0 &&
         info.tcpi_rcv_ooopack == 0 && ::ioctl(fd, SIOCOUTQ, &unsent) == 0 && unsent == 0 &&
         kernel::poll_now(&urgent, 1) == 0;
}

struct Numbers {
  uint32_t snd_nxt = 0, rcv_nxt = 0;
  bool operator==(const Numbers&) const = default;
};

/// The receive queue stays chosen.
Result<Numbers> read_numbers(int fd) {
  const auto of_queue = [&](int queue) -> Result<uint32_t> {
    if (auto ok = set_int(fd, TCP_REPAIR_QUEUE, queue); !ok) return std::unexpected(ok.error());
    return get<uint32_t>(fd, TCP_QUEUE_SEQ);
  };
  const auto snd_nxt = of_queue(TCP_SEND_QUEUE);
  if (!snd_nxt) return std::unexpected(snd_nxt.error());
  const auto rcv_nxt = of_queue(TCP_RECV_QUEUE);
  if (!rcv_nxt) return std::unexpected(rcv_nxt.error());
  return Numbers{*snd_nxt, *rcv_nxt};
}

/// Copies the received bytes, which stay in the kernel's queue.
Result<void> read_unread(int fd, std::vector<std::byte>& to) {
  int bytes = 0;
  if (::ioctl(fd, SIOCINQ, &bytes) != 0) return fail_errno("SIOCINQ");
  if (bytes > kMostUnread) return fail(EAGAIN, "much that was not read");
  to.resize(static_cast<size_t>(bytes));
  if (bytes == 0) return {};
  iovec all{to.data(), to.size()};
  msghdr m{};
  m.msg_iov = &all;
  m.msg_iovlen = 1;
  if (kernel::recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT) != bytes) return fail_errno("recv");
  return {};
}

/// In repair mode. nullopt: it changed meanwhile.
Result<std::optional<tcp::TakeOver>> read_once(int fd, std::vector<std::byte>& unread) {
  const auto info = get<tcp_info>(fd, TCP_INFO);
  if (!info) return std::unexpected(info.error());
  if (!is_plain(fd, *info)) return fail(EAGAIN, "not a plain connection");
  const auto numbers = read_numbers(fd);
  if (!numbers) return std::unexpected(numbers.error());
  if (auto ok = read_unread(fd, unread); !ok) return std::unexpected(ok.error());
  const auto windows = get<tcp_repair_window>(fd, TCP_REPAIR_WINDOW);
  const auto mss = get<int>(fd, TCP_MAXSEG);  // in repair mode what the peer offered
  const auto timestamp = get<uint32_t>(fd, TCP_TIMESTAMP);
  if (!windows || !mss || !timestamp) return fail(EOPNOTSUPP, "TCP_REPAIR");
  const auto again = read_numbers(fd);
  if (!again) return std::unexpected(again.error());
  if (*again != *numbers) return std::nullopt;
  tcp::TakeOver o;
  o.snd_nxt = Seq32(numbers->snd_nxt);
  o.rcv_nxt = Seq32(numbers->rcv_nxt);
  o.rcv_acked = Seq32(windows->rcv_wup);
  o.rcv_adv = Seq32(windows->rcv_wup + windows->rcv_wnd);
  o.unread = unread;
  o.peer_mss = static_cast<uint16_t>(std::clamp(*mss, 88, 65535));
  o.wscale = (info->tcpi_options & TCPI_OPT_WSCALE) != 0;
  o.snd_wscale = info->tcpi_snd_wscale;
  o.rcv_wscale = info->tcpi_rcv_wscale;
  o.sack = (info->tcpi_options & TCPI_OPT_SACK) != 0;
  o.timestamps = (info->tcpi_options & TCPI_OPT_TIMESTAMPS) != 0;
  o.ecn = (info->tcpi_options & TCPI_OPT_ECN) != 0;
  o.timestamp = *timestamp;
  o.snd_wl1 = Seq32(windows->snd_wl1);
  o.snd_wnd = windows->snd_wnd;
  o.max_wnd = windows->max_window;
  o.srtt = Duration::us(info->tcpi_rtt);
  return o;
}

}  // namespace

bool is_plain_now(int fd) {
  const auto info = get<tcp_info>(fd, TCP_INFO);
  int bytes = 0;
  // More may come before it is taken.
  return info && is_plain(fd, *info) && ::ioctl(fd, SIOCINQ, &bytes) == 0 &&
         bytes <= kMostUnread / 2;
}

Result<tcp::TakeOver> take_from_kernel(int fd, std::vector<std::byte>& unread) {
  if (auto ok = set_int(fd, TCP_REPAIR, kOn); !ok) return std::unexpected(ok.error());
  // It changes only by what the kernel was processing when it was told to receive nothing.
  constexpr int kLooks = 8;
  for (int looks = 0; looks < kLooks; ++looks) {
    const auto read = read_once(fd, unread);
    if (read && !*read) continue;
    if (read) return **read;
    leave_with_kernel(fd);
    return std::unexpected(read.error());
  }
  leave_with_kernel(fd);
  return fail(EAGAIN, "it changes");
}

void leave_with_kernel(int fd) { (void)set_int(fd, TCP_REPAIR, kNoWindowProbe); }

}  // namespace vireo
