#include "tests/packetdrill/stack.h"

#include <fcntl.h>
#include <linux/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tests/script/runner.h"

namespace vireo::packetdrill {
namespace {

constexpr Duration kPatience = Duration::s(600);  ///< virtual time without a packet: none comes

int result(int64_t r) {
  if (r >= 0) return static_cast<int>(r);
  errno = static_cast<int>(-r);
  return -1;
}

/// The settings of the network namespace that the script's commands may have changed.
std::vector<script::Setting> kernel_settings() {
  std::vector<script::Setting> all;
  for (const char* name :
       {"tcp_sack", "tcp_timestamps", "tcp_window_scaling", "tcp_syn_retries", "tcp_synack_retries",
        "tcp_retries2", "tcp_fin_timeout", "tcp_keepalive_time", "tcp_keepalive_intvl",
        "tcp_keepalive_probes", "tcp_ecn", "tcp_congestion_control", "tcp_early_retrans",
        "tcp_recovery", "tcp_frto"}) {
    std::ifstream in(std::string("/proc/sys/net/ipv4/") + name);
    std::string value;
    if (in >> value) all.push_back({name, value});
  }
  // Linux counts a buffer's overhead: half of it is shown as window (tcp_adv_win_scale 1), and the
  // shift is for the largest the buffer may grow to.
  std::ifstream in("/proc/sys/net/ipv4/tcp_rmem");
  uint64_t least = 0, initial = 0, most = 0;
  if (in >> least >> initial >> most) {
    unsigned shift = 0;
    while (shift < 14 && (65535ULL << shift) < most) ++shift;
    all.push_back({"tcp_rmem", "4096 " + std::to_string(initial / 2) + " " + std::to_string(most)});
    all.push_back({"vireo.wscale", std::to_string(shift)});
  }
  return all;
}

void fill(tcp_info& out, const tcp::Info& i) {
  // The kernel's numbers (net/tcp_states.h), in the order of tcp::State.
  constexpr uint8_t kStates[] = {7, 2, 3, 1, 4, 5, 8, 11, 9, 6};
  out.tcpi_state = kStates[static_cast<unsigned>(i.state)];
  out.tcpi_retransmits = static_cast<uint8_t>(std::min(i.retransmits, 255U));
  out.tcpi_options =
      static_cast<uint8_t>((i.timestamps ? 1U : 0U) | (i.sack ? 2U : 0U) | (i.wscale ? 4U : 0U));
  out.tcpi_snd_wscale = i.snd_wscale & 15U;
  out.tcpi_rcv_wscale = i.rcv_wscale & 15U;
  out.tcpi_rto = static_cast<uint32_t>(i.rto.us());
  out.tcpi_snd_mss = i.snd_mss;
  out.tcpi_rcv_mss = i.rcv_mss;
  out.tcpi_unacked = i.unacked;
  out.tcpi_total_retrans = i.total_retrans;
  out.tcpi_rtt = static_cast<uint32_t>(i.srtt.us());
  out.tcpi_rttvar = static_cast<uint32_t>(i.rttvar.us());
  out.tcpi_min_rtt = static_cast<uint32_t>(i.min_rtt.us());
  out.tcpi_snd_cwnd = i.snd_cwnd;
  out.tcpi_snd_ssthresh = i.snd_ssthresh;
  out.tcpi_rcv_space = i.rcv_space;
  out.tcpi_bytes_acked = i.bytes_acked;
  out.tcpi_bytes_received = i.bytes_received;
  out.tcpi_segs_out = i.segs_out;
  out.tcpi_segs_in = i.segs_in;
  out.tcpi_data_segs_out = i.data_segs_out;
  out.tcpi_data_segs_in = i.data_segs_in;
  out.tcpi_notsent_bytes = i.notsent_bytes;
  out.tcpi_bytes_sent = i.bytes_sent;
  out.tcpi_bytes_retrans = i.bytes_retrans;
  out.tcpi_dsack_dups = i.dsack_dups;
  out.tcpi_reord_seen = i.reord_seen;
  out.tcpi_rcv_ooopack = i.rcv_ooopack;
}

std::string gather(std::span<const iovec> from) {
  std::string all;
  for (const iovec& v : from) all.append(static_cast<const char*>(v.iov_base), v.iov_len);
  return all;
}

}  // namespace

/// Made at the first call, when the script's commands have set the kernel's settings.
script::Host& Stack::host() {
  if (!host_) {
    tcp::Config c;
    c.mss = 1460;
    std::string bad;
    script::configure(kernel_settings(), c, bad);
    host_ = std::make_unique<script::Host>(c, Seq32(0x5eed0000), 16384);
    start_ = host_->now();
  }
  return *host_;
}

void Stack::advance(Instant to) {
  script::Host& h = host();
  while (h.deadline() <= to) h.step(h.deadline());
  h.step(to);
  moved_.notify_all();
}

int64_t Stack::wait_for(std::unique_lock<std::mutex>& lock, bool wait,
                        const std::function<int64_t()>& call) {
  while (true) {
    const int64_t r = call();
    moved_.notify_all();
    if (!wait || (r != -EAGAIN && r != -EINPROGRESS && r != -EALREADY)) return r;
    moved_.wait(lock);
  }
}

// ---- calls

int Stack::socket(int type) {
  const std::lock_guard lock(mutex_);
  return result(host().socket((type & SOCK_NONBLOCK) != 0));
}

int Stack::bind(int fd, const sockaddr* sa, socklen_t n) {
  const std::lock_guard lock(mutex_);
  if (const auto p = Place::of(sa, n)) local_ = *p;
  return result(host().bind(fd));
}

int Stack::accept(int fd, sockaddr* sa, socklen_t* n) {
  std::unique_lock lock(mutex_);
  const int64_t r =
      wait_for(lock, !host().is_nonblocking(fd), [&] { return int64_t{host().accept(fd)}; });
  if (r >= 0 && sa != nullptr && n != nullptr) {
    if (!remote_.v6 && *n >= sizeof(sockaddr_in)) {
      sockaddr_in in{};
      in.sin_family = AF_INET;
      in.sin_port = htons(remote_.port);
      std::memcpy(&in.sin_addr, remote_.address.data(), 4);
      std::memcpy(sa, &in, sizeof in);
      *n = sizeof in;
    } else if (*n >= sizeof(sockaddr_in6)) {
      sockaddr_in6 in{};
      in.sin6_family = AF_INET6;
      in.sin6_port = htons(remote_.port);
      std::memcpy(&in.sin6_addr, remote_.address.data(), 16);
      std::memcpy(sa, &in, sizeof in);
      *n = sizeof in;
    }
  }
  return result(r);
}

int Stack::connect(int fd, const sockaddr* sa, socklen_t n) {
  std::unique_lock lock(mutex_);
  const auto p = Place::of(sa, n);
  if (!p) return result(-EINVAL);
  remote_ = *p;
  if (local_.port == 0) {
    local_ = Place{.v6 = p->v6, .address = {192, 168, 0, 1}, .port = 40'000};
    if (p->v6) local_.address = {0xfd, 0x3d, 0xfa, 0x7b, 0xd1, 0x7d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  }
  bool begun = false;
  return result(wait_for(lock, !host().is_nonblocking(fd), [&] {
    const int r = host().connect(fd);
    if (r == -EINPROGRESS || r == -EALREADY) begun = true;
    return int64_t{begun && r == -EISCONN ? 0 : r};
  }));
}

ssize_t Stack::receive(int fd, std::span<const iovec> to, int flags) {
  std::unique_lock lock(mutex_);
  size_t room = 0;
  for (const iovec& v : to) room += v.iov_len;
  std::string got;
  const bool wait = !host().is_nonblocking(fd) && (flags & MSG_DONTWAIT) == 0;
  const int64_t r = wait_for(lock, wait, [&] { return host().read(fd, room, flags, got); });
  size_t at = 0;
  for (const iovec& v : to) {
    const size_t n = std::min(v.iov_len, got.size() - at);
    std::memcpy(v.iov_base, got.data() + at, n);
    at += n;
  }
  return result(r);
}

ssize_t Stack::send(int fd, std::span<const iovec> from, int flags) {
  std::unique_lock lock(mutex_);
  const std::string all = gather(from);
  size_t done = 0;
  const bool wait = !host().is_nonblocking(fd) && (flags & MSG_DONTWAIT) == 0;
  const int64_t r = wait_for(lock, wait, [&]() -> int64_t {
    const int64_t n = host().write(fd, all.substr(done), flags);
    if (n < 0) return n;
    done += static_cast<size_t>(n);
    return done < all.size() ? -EAGAIN : n;
  });
  return done > 0 ? static_cast<ssize_t>(done) : result(r);
}

int Stack::simple(const std::function<int(script::Host&)>& call) {
  const std::lock_guard lock(mutex_);
  const int r = call(host());
  moved_.notify_all();
  return result(r);
}

int Stack::fcntl(int fd, int command, long argument) {
  const std::lock_guard lock(mutex_);
  if (command == F_GETFL) return O_RDWR | (host().is_nonblocking(fd) ? O_NONBLOCK : 0);
  if (command == F_SETFL) return result(host().set_nonblocking(fd, (argument & O_NONBLOCK) != 0));
  return result(-EINVAL);
}

int Stack::ioctl(int fd, unsigned long request, int* value) {
  const std::lock_guard lock(mutex_);
  const int64_t v = host().ioctl(fd, request);
  if (v <= script::Host::kErrorBase) return result(v - script::Host::kErrorBase);
  *value = static_cast<int>(v);
  return 0;
}

int Stack::getsockopt(int fd, int level, int name, void* value, socklen_t* n) {
  const std::lock_guard lock(mutex_);
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    tcp_info out{};
    if (const tcp::Tcb* t = host().connection()) fill(out, tcp::info(*t));
    *n = std::min<socklen_t>(*n, sizeof out);
    std::memcpy(value, &out, *n);
    return 0;
  }
  const int64_t v = host().getsockopt(fd, level, name);
  if (v <= script::Host::kErrorBase) return result(v - script::Host::kErrorBase);
  const auto i = static_cast<int>(v);
  *n = std::min<socklen_t>(*n, sizeof i);
  std::memcpy(value, &i, *n);
  return 0;
}

int Stack::setsockopt(int fd, int level, int name, const void* value, socklen_t n) {
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> all(n / sizeof(int));
  for (size_t i = 0; i < all.size(); ++i) {
    int v = 0;
    std::memcpy(&v, static_cast<const char*>(value) + i * sizeof v, sizeof v);
    all[i] = v;
  }
  return result(host().setsockopt(fd, level, name, all));
}

int Stack::poll(std::span<pollfd> fds, int timeout) {
  std::unique_lock lock(mutex_);
  const Instant end = host().now() + Duration::ms(timeout);
  return result(wait_for(lock, timeout != 0, [&]() -> int64_t {
    int64_t ready = 0;
    for (pollfd& p : fds) {
      constexpr int kAlways = POLLERR | POLLHUP | POLLNVAL;
      p.revents = static_cast<short>(host().poll(p.fd) & (p.events | kAlways));
      ready += p.revents != 0 ? 1 : 0;
    }
    return ready > 0 || (timeout > 0 && host().now() >= end) || timeout == 0 ? ready : -EAGAIN;
  }));
}

// ---- wire and time

int Stack::packet_in(std::span<const uint8_t> packet) {
  const std::lock_guard lock(mutex_);
  const auto a = parse_packet(packet);
  if (!a) return 0;
  if (a->icmp) {
    host().deliver_icmp(a->icmp->seq, a->icmp->error, a->icmp->mtu);
  } else {
    local_ = a->to;
    remote_ = a->from;
    host().deliver(a->segment);
  }
  moved_.notify_all();
  return 0;
}

int Stack::packet_out(void* packet, size_t* n, long long* usecs) {
  const std::lock_guard lock(mutex_);
  script::Host& h = host();
  const Instant end = h.now() + kPatience;
  while (h.sent().empty() && h.deadline() <= end) advance(h.deadline());
  if (h.sent().empty()) {
    // There is no way to say "nothing comes", so what comes is no packet: the script fails here.
    std::memset(packet, 0x45, 1);
    *n = 1;
    *usecs = (h.now() - start_).us();
    return 0;
  }
  script::WireSegment s = std::move(h.sent().front());
  h.sent().pop_front();
  constexpr uint8_t kEnds = 0x07, kPsh = 0x08;
  while (merge_ && !h.sent().empty() && (s.flags & kEnds) == 0 && !s.payload.empty()) {
    const script::WireSegment& next = h.sent().front();
    if (next.at != s.at || next.payload.empty() || (next.flags & 0x06) != 0 ||
        next.seq != s.seq + static_cast<uint32_t>(s.payload.size()) || next.ack != s.ack ||
        next.options != s.options || s.payload.size() + next.payload.size() > 65'000)
      break;
    s.payload += next.payload;
    s.flags = static_cast<uint8_t>((s.flags & ~kPsh) | next.flags);
    h.sent().pop_front();
  }
  const std::vector<uint8_t> b = build_packet(local_, remote_, s);
  *n = std::min(*n, b.size());
  std::memcpy(packet, b.data(), *n);
  *usecs = (s.at - start_).us();
  return 0;
}

void Stack::sleep(Duration d) {
  const std::lock_guard lock(mutex_);
  advance(host().now() + d);
}

timeval Stack::time() {
  const std::lock_guard lock(mutex_);
  const Duration t = host().now() - start_;
  advance(host().now() + Duration::us(1));
  return {.tv_sec = t.s(), .tv_usec = t.us() % 1'000'000};
}

}  // namespace vireo::packetdrill
